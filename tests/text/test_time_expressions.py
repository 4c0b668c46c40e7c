"""Times named in a question, and texts that only resemble one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.growth_cases import repeat_to_size
from benchmarks.growth_texts import TIME_UNITS
from langmem_tiers.text.time_expressions import vocabulary
from langmem_tiers.text.time_expressions.extraction import MAX_TIME_TEXT_CHARACTERS, find_time_ranges

WED = "2023-10-18"  # a Wednesday
JAN = "2024-01-15"  # a Monday

DATES = [
    ("What happened on 2023-05-07?", WED, "2023-05-07", "2023-05-08"),
    ("What happened on 2023/05/07?", WED, "2023-05-07", "2023-05-08"),
    ("Where was I on 7 May 2023?", WED, "2023-05-07", "2023-05-08"),
    ("Where was I on 7 May, 2023?", WED, "2023-05-07", "2023-05-08"),
    ("Where was I on 7-May-2023?", WED, "2023-05-07", "2023-05-08"),
    ("Who called on May 7, 2022?", WED, "2022-05-07", "2022-05-08"),
    ("Who called on May 7,2022?", WED, "2022-05-07", "2022-05-08"),
    ("Who called on May 7 2022?", WED, "2022-05-07", "2022-05-08"),
    ("Who called on May 7th?", WED, "2023-05-07", "2023-05-08"),
    ("Who called on may 7 when I was out?", WED, "2023-05-07", "2023-05-08"),
    ("Who called on the 7th of May?", WED, "2023-05-07", "2023-05-08"),
    ("Who called on the seventh of May?", WED, "2023-05-07", "2023-05-08"),
    ("Who called on the twenty-first of June?", WED, "2023-06-21", "2023-06-22"),
    ("Who called on 7 May?", WED, "2023-05-07", "2023-05-08"),
    ("Who called on 7 November?", WED, "2022-11-07", "2022-11-08"),
    ("Who called on Sept. 9?", WED, "2023-09-09", "2023-09-10"),
    ("Who called on 18 October?", WED, "2023-10-18", "2023-10-19"),
    ("Who called on 29 February?", WED, "2020-02-29", "2020-03-01"),
    ("Who called on last May 3rd?", WED, "2023-05-03", "2023-05-04"),
    ("Who will call next May 3rd?", WED, "2024-05-03", "2024-05-04"),
    ("Who called on 7 May last year?", WED, "2022-05-07", "2022-05-08"),
    ("What did we eat on Friday, 13 October 2023?", WED, "2023-10-13", "2023-10-14"),
    ("What did we eat on Sat 14 October?", WED, "2023-10-14", "2023-10-15"),
    ("The invoice of 5/7/2023", WED, "2023-05-07", "2023-05-08"),
    ("The invoice of 15/7/2023", WED, "2023-07-15", "2023-07-16"),
    ("The invoice of 5/7/23", WED, "2023-05-07", "2023-05-08"),
    ("The invoice of 05.07.2023", WED, "2023-07-05", "2023-07-06"),
    ("What did she say on the 7th?", WED, "2023-10-07", "2023-10-08"),
    ("What did she say on the 20th?", WED, "2023-09-20", "2023-09-21"),
    ("What did she say on the 31st?", WED, "2023-08-31", "2023-09-01"),
    ("What did she say on the 7th of last month?", WED, "2023-09-07", "2023-09-08"),
]
MONTHS_AND_MORE = [
    ("What did I read in May 2023?", WED, "2023-05-01", "2023-06-01"),
    ("What did I read in May '22?", WED, "2022-05-01", "2022-06-01"),
    ("What did I read in May of 2022?", WED, "2022-05-01", "2022-06-01"),
    ("What did I read in May?", WED, "2023-05-01", "2023-06-01"),
    ("what did i read in may", WED, "2023-05-01", "2023-06-01"),
    ("What did I read in October?", WED, "2023-10-01", "2023-11-01"),
    ("What did I read in December?", WED, "2022-12-01", "2023-01-01"),
    ("What did I read last May?", WED, "2023-05-01", "2023-06-01"),
    ("What did I read last October?", WED, "2022-10-01", "2022-11-01"),
    ("What will I read this December?", WED, "2023-12-01", "2024-01-01"),
    ("What will I read next May?", WED, "2024-05-01", "2024-06-01"),
    ("What did I read in May last year?", WED, "2022-05-01", "2022-06-01"),
    ("What did I read last year in May?", WED, "2022-05-01", "2022-06-01"),
    ("Who came on the May trip?", WED, "2023-05-01", "2023-06-01"),
    ("How was the month of May?", WED, "2023-05-01", "2023-06-01"),
    ("What was built in 2022?", WED, "2022-01-01", "2023-01-01"),
    ("2022", WED, "2022-01-01", "2023-01-01"),
    ("Which songs are of the 1990s?", WED, "1990-01-01", "2000-01-01"),
    ("Where did we swim in summer 2022?", WED, "2022-06-01", "2022-09-01"),
    ("Where did we swim in the summer of 2022?", WED, "2022-06-01", "2022-09-01"),
    ("Where did we swim during the summer?", WED, "2023-06-01", "2023-09-01"),
    ("Where did we ski last winter?", JAN, "2022-12-01", "2023-03-01"),
    ("Where do we ski this winter?", JAN, "2023-12-01", "2024-03-01"),
    ("Where did we ski in winter 2022?", WED, "2022-12-01", "2023-03-01"),
    ("Where did we ski in the winter of 2022-2023?", WED, "2022-12-01", "2023-03-01"),
    ("what did i read in jan", WED, "2023-01-01", "2023-02-01"),
    ("What were the sales of Q3 2023?", JAN, "2023-07-01", "2023-10-01"),
    ("What were the sales in the third quarter of 2023?", JAN, "2023-07-01", "2023-10-01"),
    ("What did I buy in early May?", WED, "2023-05-01", "2023-05-11"),
    ("What did I buy in mid-May 2022?", WED, "2022-05-11", "2022-05-22"),
    ("What did I buy in late June?", WED, "2023-06-21", "2023-07-01"),
    ("What did I buy at the end of June 2022?", WED, "2022-06-21", "2022-07-01"),
    ("What did I buy early last year?", WED, "2022-01-01", "2022-05-03"),
    ("What did I buy in the second half of 2022?", WED, "2022-07-02", "2023-01-01"),
]
FROM_NOW = [
    ("What did I eat today?", WED, "2023-10-18", "2023-10-19"),
    ("What did I eat this morning?", WED, "2023-10-18", "2023-10-19"),
    ("What did I eat yesterday?", WED, "2023-10-17", "2023-10-18"),
    ("What were yesterday's orders?", WED, "2023-10-17", "2023-10-18"),
    ("What did I eat the day before yesterday?", WED, "2023-10-16", "2023-10-17"),
    ("What is planned for tomorrow?", WED, "2023-10-19", "2023-10-20"),
    ("What is planned for the day after tomorrow?", WED, "2023-10-20", "2023-10-21"),
    ("What did I cook last week?", WED, "2023-10-09", "2023-10-16"),
    ("What did I tell her last week?", WED, "2023-10-09", "2023-10-16"),
    ("What did I cook this week?", WED, "2023-10-16", "2023-10-23"),
    ("What will I cook next week?", WED, "2023-10-23", "2023-10-30"),
    ("What did I cook the week before last?", WED, "2023-10-02", "2023-10-09"),
    ("What did I cook the Friday before last?", WED, "2023-10-06", "2023-10-07"),
    ("What did I cook in the last week?", WED, "2023-10-11", "2023-10-19"),
    ("What did I cook in the past 10 days?", WED, "2023-10-08", "2023-10-19"),
    ("What did I cook over the last few weeks?", WED, "2023-09-13", "2023-10-19"),
    ("What do I cook in the next two days?", WED, "2023-10-18", "2023-10-21"),
    ("What did I cook three days ago?", WED, "2023-10-15", "2023-10-16"),
    ("What did I cook a few days ago?", WED, "2023-10-13", "2023-10-17"),
    ("What did I cook two weeks ago?", WED, "2023-09-30", "2023-10-11"),
    ("What did I cook a couple of weeks ago?", WED, "2023-09-23", "2023-10-11"),
    ("What did I cook three months ago?", WED, "2023-07-01", "2023-08-01"),
    ("Where did I live 4 years ago?", WED, "2019-01-01", "2020-01-01"),
    ("Where did I live a few years back?", WED, "2018-01-01", "2022-01-01"),
    ("Where will I live two years from now?", WED, "2025-01-01", "2026-01-01"),
    ("What did I cook last month?", WED, "2023-09-01", "2023-10-01"),
    ("What did I cook last month?", JAN, "2023-12-01", "2024-01-01"),
    ("What did I cook last year?", WED, "2022-01-01", "2023-01-01"),
    ("What did I cook this year?", WED, "2023-01-01", "2024-01-01"),
    ("What is planned for next month?", WED, "2023-11-01", "2023-12-01"),
    ("What did I cook the previous month?", WED, "2023-09-01", "2023-10-01"),
    ("Where was I over the weekend?", WED, "2023-10-14", "2023-10-16"),
    ("Where was I over the weekend?", "2023-10-22", "2023-10-21", "2023-10-23"),
    ("Where was I last weekend?", WED, "2023-10-14", "2023-10-16"),
    ("Where was I last weekend?", "2023-10-22", "2023-10-14", "2023-10-16"),
    ("Who rang last Friday?", WED, "2023-10-13", "2023-10-14"),
    ("Who rang last Wednesday?", WED, "2023-10-11", "2023-10-12"),
    ("Who rang on Wednesday?", WED, "2023-10-18", "2023-10-19"),
    ("Who rang on Friday?", WED, "2023-10-13", "2023-10-14"),
    ("Who rang Monday night?", WED, "2023-10-16", "2023-10-17"),
    ("Who rings this Friday?", WED, "2023-10-20", "2023-10-21"),
    ("Who rings next Monday?", WED, "2023-10-23", "2023-10-24"),
    ("Who rang on Tuesday of last week?", WED, "2023-10-10", "2023-10-11"),
    ("Who rang last week on Tuesday?", WED, "2023-10-10", "2023-10-11"),
    ("Who rang this past Sunday?", WED, "2023-10-15", "2023-10-16"),
]
BESIDE_OTHERS = [
    ("What changed since May?", WED, "2023-05-01", "2023-10-19"),
    ("What changed since yesterday?", WED, "2023-10-17", "2023-10-19"),
    ("What was decided before 3 June 2023?", WED, "1900-01-01", "2023-06-03"),
    ("What was decided prior to June 2023?", WED, "1900-01-01", "2023-06-01"),
    ("What was decided by 3 June 2023?", WED, "1900-01-01", "2023-06-04"),
    ("What was decided after 3 June 2023?", WED, "2023-06-04", "2023-10-19"),
    ("What is due after 3 June 2024?", WED, "2024-06-04", "2101-01-01"),
    ("Who wrote between May and July 2023?", WED, "2023-05-01", "2023-08-01"),
    ("Who wrote between November and February 2023?", WED, "2022-11-01", "2023-03-01"),
    ("Who wrote between November 2021 and February?", WED, "2021-11-01", "2022-03-01"),
    ("Who wrote between May and July?", WED, "2023-05-01", "2023-08-01"),
    ("Who wrote from 3 to 7 June?", WED, "2023-06-03", "2023-06-08"),
    ("Who wrote from June 3 to 7, 2022?", WED, "2022-06-03", "2022-06-08"),
    ("Who wrote June 3-7?", WED, "2023-06-03", "2023-06-08"),
    ("Who wrote from 28 May to 3 June 2022?", WED, "2022-05-28", "2022-06-04"),
    ("Who wrote from 2023-05-01 to 2023-05-03?", WED, "2023-05-01", "2023-05-04"),
    ("Who wrote between 2019 and 2021?", WED, "2019-01-01", "2022-01-01"),
    ("Who wrote from Q1 2021 to Q2 2022?", WED, "2021-01-01", "2022-07-01"),
    ("Who wrote from Monday to Tuesday?", WED, "2023-10-16", "2023-10-18"),
    ("Who wrote from May until now?", WED, "2023-05-01", "2023-10-19"),
    ("What was bought the week before my birthday party on 3 June?", WED, "2023-05-27", "2023-06-03"),
    ("What was bought during the week before 9 June 2023?", WED, "2023-06-02", "2023-06-09"),
    ("What was bought in the week of 3 June 2023?", WED, "2023-05-29", "2023-06-05"),
    ("What was bought the month after 3 June 2023?", WED, "2023-06-04", "2023-07-04"),
    ("What was bought the month after May 2023?", WED, "2023-06-01", "2023-07-01"),
    ("What was bought the month following May 2023?", WED, "2023-06-01", "2023-07-01"),
    ("What was bought the month preceding May 2023?", WED, "2023-04-01", "2023-05-01"),
    ("What was bought the weekend before 3 June 2023?", WED, "2023-05-27", "2023-05-29"),
    ("What was bought on the weekend of 7 June 2023?", WED, "2023-06-10", "2023-06-12"),
    ("What was bought two days after 3 June 2023?", WED, "2023-06-05", "2023-06-06"),
    ("What was bought a week before 3 June 2023?", WED, "2023-05-20", "2023-05-31"),
    ("What was bought in the two weeks before 3 June 2023?", WED, "2023-05-20", "2023-06-03"),
    ("What was bought shortly after 3 June 2023?", WED, "2023-06-04", "2023-06-11"),
    ("What was bought on the Friday before 22 October 2023?", WED, "2023-10-20", "2023-10-21"),
    ("What was bought on the Saturday after 28 October 2023?", WED, "2023-11-04", "2023-11-05"),
    ("What was bought on the first weekend of August 2023?", WED, "2023-08-05", "2023-08-07"),
    ("What was bought in the last week of August 2023?", WED, "2023-08-25", "2023-09-01"),
    ("What was bought on the second Friday in June 2023?", WED, "2023-06-09", "2023-06-10"),
    ("What was bought in the first two weeks of May 2023?", WED, "2023-05-01", "2023-05-15"),
    ("What was bought last Friday on 23 January, 2022?", WED, "2022-01-21", "2022-01-24"),
]
CHINESE = [
    ("2023年5月7日发生了什么？", WED, "2023-05-07", "2023-05-08"),
    ("我们5月7日去了哪里", WED, "2023-05-07", "2023-05-08"),
    ("12月7号我在哪里", WED, "2022-12-07", "2022-12-08"),
    ("2022年我在哪里工作", WED, "2022-01-01", "2023-01-01"),
    ("去年5月我在哪里", WED, "2022-05-01", "2022-06-01"),
    ("上周谁来了", WED, "2023-10-09", "2023-10-16"),
    ("上个月谁来了", WED, "2023-09-01", "2023-10-01"),
    ("她去年学了什么", WED, "2022-01-01", "2023-01-01"),
    ("小明上周五去了哪里？", WED, "2023-10-13", "2023-10-14"),
    ("上个星期天谁来了", WED, "2023-10-15", "2023-10-16"),
    ("上上周三的会", WED, "2023-10-04", "2023-10-05"),
    ("周五吃了什么", WED, "2023-10-13", "2023-10-14"),
    ("周三吃了什么", WED, "2023-10-18", "2023-10-19"),
    ("这周一谁来了", WED, "2023-10-16", "2023-10-17"),
    ("上周末去哪玩了", WED, "2023-10-14", "2023-10-16"),
    ("周末去哪玩了", WED, "2023-10-14", "2023-10-16"),
    ("上个星期谁来了", WED, "2023-10-09", "2023-10-16"),
    ("上礼拜谁来了", WED, "2023-10-09", "2023-10-16"),
    ("去年夏天她去了哪里？", WED, "2022-06-01", "2022-09-01"),
    ("今年的春天她去了哪里？", WED, "2023-03-01", "2023-06-01"),
    ("2022年冬天她在哪", WED, "2022-12-01", "2023-03-01"),
    ("这个夏天她在哪", WED, "2023-06-01", "2023-09-01"),
    ("去年上半年她在哪", WED, "2022-01-01", "2022-07-01"),
    ("去年年底她在哪", WED, "2022-09-01", "2023-01-01"),
    ("五月底她在哪", WED, "2023-05-22", "2023-06-01"),
    ("十二月她在哪", WED, "2022-12-01", "2023-01-01"),
    ("五月二十号她在哪", WED, "2023-05-20", "2023-05-21"),
    ("二〇二二年三月三十一日", WED, "2022-03-31", "2022-04-01"),
    ("去年十月份她在哪", WED, "2022-10-01", "2022-11-01"),
    ("三天前谁来了", WED, "2023-10-15", "2023-10-16"),
    ("两周前谁来了", WED, "2023-09-30", "2023-10-11"),
    ("三个月前谁来了", WED, "2023-07-01", "2023-08-01"),
    ("两年前谁来了", WED, "2021-01-01", "2022-01-01"),
    ("半年前谁来了", WED, "2023-04-01", "2023-05-01"),
    ("几天前谁来了", WED, "2023-10-13", "2023-10-17"),
    ("大前天谁来了", WED, "2023-10-15", "2023-10-16"),
    ("這個週末去哪玩了", WED, "2023-10-21", "2023-10-23"),
    ("上個禮拜五去哪玩了", WED, "2023-10-13", "2023-10-14"),
    ("先週どこへ行きましたか", WED, "2023-10-09", "2023-10-16"),
    ("去年の夏はどこへ行きましたか", WED, "2022-06-01", "2022-09-01"),
    ("2023年 5月 7日に何をしましたか", WED, "2023-05-07", "2023-05-08"),
    ("작년에 어디에 갔어요?", WED, "2022-01-01", "2023-01-01"),
    ("2023년 5월 7일에 뭐 했어요?", WED, "2023-05-07", "2023-05-08"),
    ("昨天吃了什么", WED, "2023-10-17", "2023-10-18"),
    ("前天吃了什么", WED, "2023-10-16", "2023-10-17"),
    ("今天吃了什么", WED, "2023-10-18", "2023-10-19"),
]
EAST_ASIAN = [
    ("大前天", "2023-10-15", "2023-10-16"),
    ("前天 一昨日 그저께", "2023-10-16", "2023-10-17"),
    ("昨天 昨日 어제", "2023-10-17", "2023-10-18"),
    ("今天 今早 今日 오늘", "2023-10-18", "2023-10-19"),
    ("明天 明日 내일", "2023-10-19", "2023-10-20"),
    ("后天", "2023-10-20", "2023-10-21"),
    ("上上周 上上星期 上上个礼拜", "2023-10-02", "2023-10-09"),
    ("上周 上星期 上礼拜 上个星期 上个礼拜 先周 지난주", "2023-10-09", "2023-10-16"),
    ("这周 本周 这星期 本星期 这个礼拜 今周 이번_주", "2023-10-16", "2023-10-23"),
    ("下周 下星期 下个礼拜 来周 다음_주", "2023-10-23", "2023-10-30"),
    ("上上个月", "2023-08-01", "2023-09-01"),
    ("上月 上个月 先月 지난달", "2023-09-01", "2023-10-01"),
    ("本月 这个月 今月 이번_달", "2023-10-01", "2023-11-01"),
    ("下个月 来月", "2023-11-01", "2023-12-01"),
    ("前年 一昨年 재작년", "2021-01-01", "2022-01-01"),
    ("去年 昨年 작년", "2022-01-01", "2023-01-01"),
    ("今年 올해", "2023-01-01", "2024-01-01"),
    ("明年 来年 내년", "2024-01-01", "2025-01-01"),
    ("后年", "2025-01-01", "2026-01-01"),
    ("上周二", "2023-10-10", "2023-10-11"),
    ("上周四", "2023-10-12", "2023-10-13"),
    ("上周六", "2023-10-14", "2023-10-15"),
    ("上周日 上周天", "2023-10-15", "2023-10-16"),
    ("这周四 本周四", "2023-10-19", "2023-10-20"),
    ("下周一", "2023-10-23", "2023-10-24"),
    ("上上周末", "2023-10-07", "2023-10-09"),
    ("去年秋天", "2022-09-01", "2022-12-01"),
    ("去年下半年", "2022-07-01", "2023-01-01"),
    ("去年年初", "2022-01-01", "2022-05-03"),
    ("去年年中", "2022-05-03", "2022-09-01"),
    ("去年年底 去年年末", "2022-09-01", "2023-01-01"),
    ("五月初 五月上旬", "2023-05-01", "2023-05-11"),
    ("五月中旬", "2023-05-11", "2023-05-22"),
    ("五月下旬 五月底 五月末", "2023-05-22", "2023-06-01"),
    ("3日前 三天前 三天以前 三天之前", "2023-10-15", "2023-10-16"),
    ("2个星期前 两个礼拜前 半个月前", "2023-09-30", "2023-10-11"),
    ("二零二一年 二〇二一年", "2021-01-01", "2022-01-01"),
]
NOTHING = [
    "",
    "What did I buy recently?",
    "I may go home.",
    "May I ask you something?",
    "May 7 of us come too?",
    "This may well be true.",
    "You said that all 7 may come.",
    "Did May go home with Sara?",
    "What did I say to June about April?",
    "Are June, April and May my cousins?",
    "They march on the capital.",
    "Who led the March on Washington?",
    "Wait a second, the sun is out and the cat sat here, mon ami.",
    "Is the shop open 24/7?",
    "Add 1/2 cup of sugar.",
    "Upgrade to Python 3.12.1 or to v2023.1.",
    "Call 555-2023 or +1 202 555 0199.",
    "The meeting is at 10:30.",
    "It cost $2020, or 2000 dollars.",
    "I walked in 2000 steps what you drive.",
    "Is the model 2020 better than Windows 2000?",
    "Room 2022 is free.",
    "See https://example.com/2023/05/07/may-2023?d=2023-05-07.",
    "Order A-2023-05-07 and ticket ABC-2023 are open, report_2023-05-07.pdf too.",
    "COVID-19 is over.",
    "What is planned for 31 June 2023?",
    "Was it 2023-02-30 or 30/30/2023?",
    "Who was born on 29 February 2023?",
    "We meet every Friday and on Mondays.",
    "What did I buy on Black Friday?",
    "How was my last week at the old job?",
    "How was the last day of school?",
    "I will fall off the chair in a spring of water.",
    "How did he break his arm during the fall?",
    "The trip took 3 weeks and 2 days.",
    "She turned 18 on her 18th birthday.",
    "We live on the 5th floor.",
    "It weighs 1900 or 2000, or 3 to 7 pounds.",
    "What did we do the next day?",
    "How long ago was that?",
    "When did she decide to declare it?",
    "2000-3000 people, 1800, 2150 and 12345.",
    "目前天气怎么样",
    "他身上周围都是水，三个月大，6月龄",
    "她每周三晚上上课，喜欢夏天，学了五周，第二天就走了",
    "十十月二二号，周年庆，一周岁，过去年代，今年轻人",
    "2023年13月40日",
]


EDGES = [
    datetime.min.replace(tzinfo=UTC),
    datetime(1, 12, 31, tzinfo=UTC),
    datetime(9999, 1, 1, tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
]


def at(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(hour=15, minute=30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("question", "now", "start", "end"), [*DATES, *MONTHS_AND_MORE, *FROM_NOW, *BESIDE_OTHERS, *CHINESE]
)
def test_a_question_refers_to_one_time(question: str, now: str, start: str, end: str) -> None:
    found = [
        (f"{time_range.start:%Y-%m-%d %H:%M}", f"{time_range.end:%Y-%m-%d %H:%M}")
        for time_range in find_time_ranges(question, at(now))
    ]
    assert found == [(f"{start} 00:00", f"{end} 00:00")]


@pytest.mark.parametrize(("said", "start", "end"), EAST_ASIAN)
def test_chinese_japanese_and_korean_times_are_relative_to_today(said: str, start: str, end: str) -> None:
    for word in said.split():
        [found] = find_time_ranges(word.replace("_", " "), at(WED))
        assert (word, f"{found.start:%Y-%m-%d %H:%M}", f"{found.end:%Y-%m-%d %H:%M}") == (
            word,
            f"{start} 00:00",
            f"{end} 00:00",
        )


@pytest.mark.parametrize("text", NOTHING)
def test_text_that_resembles_a_time_is_not_one(text: str) -> None:
    assert find_time_ranges(text, at(WED)) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Was it on last May 3rd, or in June?", ["last May 3rd", "June"]),
        ("From 3 to 7 June, and yesterday's too", ["From 3 to 7 June", "yesterday"]),
        ("The week before my trip on 3 June (2022)", ["The week before my trip on 3 June", "2022"]),
        ("Friday, 13 October 2023 or Saturday", ["Friday, 13 October 2023", "Saturday"]),
        ("“2023-05-07” and **2023-05-08**", ["2023-05-07", "2023-05-08"]),
        ("昨天 and today，去年5月", ["昨天", "today", "去年5月"]),
        ("去年5月我在家，昨天出门", ["去年5月", "昨天"]),
        ("The festival (2022) was loud", ["2022"]),
        (
            "The week before my sister's big birthday party outdoors on 3 June",
            ["The week before my sister's big birthday party outdoors on 3 June"],
        ),
        ("The week before my little sister's big birthday party outdoors on 3 June", ["3 June"]),
        ("31 June, 3 July", ["3 July"]),
        ("We were there June 3–7, I think.", ["June 3–7"]),
        ("All that was sold by Q2 2022", ["by Q2 2022"]),
        ("What did I do in March, April, and June?", ["March", "April", "June"]),
        ("Was January or May the colder one?", ["January", "May"]),
    ],
)
def test_a_range_contains_its_words(text: str, said: list[str]) -> None:
    assert [time_range.text for time_range in find_time_ranges(text, at(WED))] == said


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("last night", "2023-10-17T12:00", "2023-10-18T12:00"),
        ("tonight", "2023-10-18T12:00", "2023-10-19T12:00"),
        ("昨晚", "2023-10-17T12:00", "2023-10-18T12:00"),
        ("昨夜", "2023-10-17T12:00", "2023-10-18T12:00"),
        ("今晚", "2023-10-18T12:00", "2023-10-19T12:00"),
        ("明晚", "2023-10-19T12:00", "2023-10-20T12:00"),
        ("at 2023-05-07T10:30:15Z", "2023-05-07T10:30", "2023-05-07T10:31"),
        ("at 2023-05-07T10:30+02:00", "2023-05-07T08:30", "2023-05-07T08:31"),
        ("two hours ago", "2023-10-18T12:00", "2023-10-18T15:00"),
        ("the last 2 hours", "2023-10-18T13:30", "2023-10-18T15:30"),
    ],
)
def test_hours_and_nights_are_parts_of_days(text: str, start: str, end: str) -> None:
    [found] = find_time_ranges(text, at(WED))
    assert (f"{found.start:%Y-%m-%dT%H:%M}", f"{found.end:%Y-%m-%dT%H:%M}") == (start, end)


def test_all_times_are_in_utc() -> None:
    found = find_time_ranges("2023-05-07T10:30+02:00, 7 May 2023, last night, 昨天, since May", at(WED))
    assert {time_range.start.utcoffset() for time_range in found} | {
        time_range.end.utcoffset() for time_range in found
    } == {timedelta()}


@pytest.mark.parametrize("now", EDGES)
def test_the_ends_of_the_calendar_do_not_raise(now: datetime) -> None:
    for question, *_ in [*DATES, *MONTHS_AND_MORE, *FROM_NOW, *BESIDE_OTHERS]:
        assert all(found.start < found.end for found in find_time_ranges(question, now)), question


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    assert find_time_ranges("x " * (MAX_TIME_TEXT_CHARACTERS // 2) + "yesterday", at(WED)) == ()
    assert find_time_ranges("yesterday " + "x " * MAX_TIME_TEXT_CHARACTERS, at(WED)) != ()


@pytest.mark.parametrize("piece", TIME_UNITS)
def test_a_repeated_part_of_a_time_does_not_name_a_time(piece: str) -> None:
    assert find_time_ranges(repeat_to_size(piece, 2 * MAX_TIME_TEXT_CHARACTERS), at(WED)) == ()


VOCABULARY = sorted(
    {
        *vocabulary.ALL_MONTHS, *vocabulary.WEEKDAYS, *vocabulary.SEASONS, *vocabulary.UNITS, *vocabulary.CHOICE_WORDS,
        *vocabulary.SPAN_PARTS, *vocabulary.ADJACENT_STEPS, *vocabulary.UNTIL_WORDS,
        *vocabulary.VAGUE_NUMBERS, *vocabulary.DAY_OFFSETS,
        *vocabulary.CHINESE_WORDS, *"the a an of in on from to between and since ago past now - , . 's half".split(),
        *"May March Q3 3 31 7th 2023 2100 1900 9999 2023-05-07 5/7/2023 '22 1990s first two year 5月 2023年".split(),
    }
)  # fmt: skip
SENTENCES = st.lists(st.sampled_from(VOCABULARY), max_size=12).map(" ".join)
MOMENTS = st.datetimes(timezones=st.just(UTC))


@given(st.text() | SENTENCES, MOMENTS)
@example("the decade before last", datetime.min.replace(tzinfo=UTC))
@example("the last 9999 years", datetime.max.replace(tzinfo=UTC))
def test_any_text_at_any_time_has_non_overlapping_ranges(text: str, now: datetime) -> None:
    found = find_time_ranges(text, now)
    place = 0
    for time_range in found:
        assert time_range.start < time_range.end
        place = text.index(time_range.text, place) + len(
            time_range.text
        )  # in order, each behind the one before
    assert found == find_time_ranges(text, now)
