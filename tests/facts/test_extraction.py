from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth_cases import repeat_to_size
from benchmarks.growth_texts import MESSAGE_UNITS
from langmem_tiers.common.prompt_fences import wrap_in_fence
from langmem_tiers.compression.fact_finder import FactFinder
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.facts.extraction import FactExtractor
from langmem_tiers.facts.patterns import EXTRACTION_PATTERNS, GERMAN_PATTERNS
from langmem_tiers.facts.validation import validate_fact
from tests.messages import message

# Written before the patterns and never tuned on.
HELD_OUT: list[tuple[str, str, str | None]] = [
    ("After two weeks of testing, we chose Kafka over RabbitMQ for the event bus.", "user", "decision"),
    ("Priya selected the Frankfurt region for the new cluster.", "user", "decision"),
    ("In the end we went with Stripe because Adyen has no sandbox.", "user", "decision"),
    ("I prefer tabs over spaces, and four columns wide.", "user", "preference"),
    ("My daughter wants a birthday cake without nuts.", "user", "preference"),
    ("I really like working with small pull requests.", "user", "preference"),
    ("Invoices must be archived for ten years.", "user", "constraint"),
    ("You can't call the billing API more than 60 times a minute.", "user", "constraint"),
    ("We need to support Python 3.9 until December.", "user", "constraint"),
    ("My objective this quarter is to cut build times by half.", "user", "goal"),
    ("We are aiming for 99.95% uptime.", "user", "goal"),
    ("I live in Gothenburg with two cats.", "user", "fact"),
    ("My dentist is Dr. Okafor on Pine Street.", "user", "fact"),
    ("What do you like most about Rust?", "user", None),
    ("It looks like the tests are green again.", "user", None),
    ("Thanks, that was quick!", "user", None),
    ("She runs a mustard factory, apparently.", "user", None),
    ("Maybe we should try a smaller model, I'm not sure.", "user", None),
    ("If we wanted to, we could rewrite it in Go.", "user", None),
    ("You might want to look at the logs first.", "assistant", None),
    ("He told a story about a goalkeeper from Lyon.", "user", None),
    ("Let me know when it is done, please.", "user", None),
]

TUNED: list[tuple[str, str, str | None]] = [
    ("We decided to move the billing service to Hetzner.", "user", "decision"),
    ("After the meeting Maria chose the blue logo.", "user", "decision"),
    ("We have chosen SQLite for the prototype.", "user", "decision"),
    ("The committee selected Lisbon for the 2026 conference.", "user", "decision"),
    ("For the queue we went with RabbitMQ 3.13.", "user", "decision"),
    ("Let's go with the monthly plan.", "user", "decision"),
    ("Decision: all services log to stdout.", "user", "decision"),
    ("We decided not to support Windows 7.", "user", "decision"),
    ("We settled on trunk-based development.", "user", "decision"),
    ("You decided to use PostgreSQL 16 for orders.", "assistant", "decision"),
    ("I prefer dark mode in every editor.", "user", "preference"),
    ("My wife likes window seats on trains.", "user", "preference"),
    ("I don't like meetings before 10:00.", "user", "preference"),
    ("I'd like my summaries in bullet points.", "user", "preference"),
    ("The client wants weekly reports on Fridays.", "user", "preference"),
    ("I need a vegetarian option at team dinners.", "user", "preference"),
    ("Our users like the new keyboard shortcuts.", "user", "preference"),
    ("My preference is aisle seats.", "user", "preference"),
    ("I would prefer answers without emojis.", "user", "preference"),
    ("I hate coriander.", "user", "preference"),
    ("Passwords must be at least 12 characters long.", "user", "constraint"),
    ("The public API cannot change before v3.0.0.", "user", "constraint"),
    ("We can’t use GPL code in the mobile app.", "user", "constraint"),
    ("Every pull request should have two reviewers.", "user", "constraint"),
    ("We need to keep customer data inside the EU.", "user", "constraint"),
    ("The target directory must exist before the import.", "user", "constraint"),
    ("Deploys shouldn't happen on Fridays.", "user", "constraint"),
    ("All dates must not be stored in local time.", "user", "constraint"),
    ("Your export must finish within 30 seconds.", "assistant", "constraint"),
    ("Our goal is 10,000 paying customers by December 2026.", "user", "goal"),
    ("The main objective is to cut support tickets by 30%.", "user", "goal"),
    ("We aim to release version 2.0 in March.", "user", "goal"),
    ("The target is a response time under 200 ms.", "user", "goal"),
    ("My goals for this year are running a marathon and learning Danish.", "user", "goal"),
    ("My name is Katarzyna Nowak.", "user", "entity"),
    ("Jonas Weber is our new product owner.", "user", "entity"),
    ("Tidepool is our internal dashboard.", "user", "entity"),
    ("To deploy, run make ship on the bastion host.", "user", "procedure"),
    ("The way to reset the cache is redis-cli FLUSHALL.", "user", "procedure"),
    ("I live in Porto and commute by bike.", "user", "fact"),
    ("I work at Siemens as a test engineer.", "user", "fact"),
    ("My sister's birthday is 14 June.", "user", "fact"),
    ("We use Terraform 1.9 for all environments.", "user", "fact"),
    ("The scheduler is written in Elixir.", "user", "fact"),
    ("Production runs on three Debian servers.", "user", "fact"),
    ("I'm allergic to penicillin.", "user", "fact"),
    ("Can you fix the failing test?", "user", None),
    ("Should we use Redis or Memcached?", "user", None),
    ("Do you want me to continue", "assistant", None),
    ("Something like this would be fine.", "user", None),
    ("That sounds like a plan.", "user", None),
    ("I feel like we are going in circles.", "user", None),
    ("We decided on that.", "user", None),
    ("I want it.", "user", None),
    ("It's unlikely that the needle is in this haystack.", "user", None),
    ("Likewise, the mustard stain came out.", "user", None),
    ("I can't find the log file anywhere.", "user", None),
    ("That should work now.", "user", None),
    ("It must have been the cache.", "user", None),
    ("We haven't decided on a vendor yet.", "user", None),
    ("I think we should probably wait.", "user", None),
    ("If you like, I can add tests for it.", "assistant", None),
    ("I recommend that you use a connection pool; you should set it to 20.", "assistant", None),
    ("I need to check the configuration first.", "assistant", None),
    ("You could go with SQLite if you prefer something simple.", "assistant", None),
    ("Perhaps the goal could be smaller.", "user", None),
    ("Tools like ruff and mypy are fast.", "user", None),
    ("Thanks a lot, that helped!", "user", None),
    ("The build took 12 minutes and then passed.", "user", None),
    ("He scored a goal in the first half.", "user", None),
    ("There is no need to hurry.", "user", None),
    ("Our tests are failing again.", "user", None),
    ("My question is about the invoice.", "user", None),
    ("I want you to fix the typo in line 3.", "user", None),
    ("Please be objective about the draft.", "user", None),
    ("It works fine on my machine.", "user", None),
    # Kinds of mistakes that real conversations showed, in other words.
    ("Water lilies prefer still water and full sun.", "assistant", None),
    ("Write down your goals, needs and limits.", "assistant", None),
    ("As an AI model, I cannot open links.", "assistant", None),
    ("Label each box so that you find what you need.", "assistant", None),
    ("Here are five must-see museums in Porto:", "assistant", None),
    ("That must be so much fun for the kids.", "user", None),
    ("You can't beat a walk by the sea.", "user", None),
    ("I wanted to share some news with the group.", "user", None),
    ("I'd like to know more about the tram network.", "user", None),
    ("I need some advice on houseplants.", "user", None),
    ("I'd like to cancel my booking for tomorrow.", "user", None),
    ("I love how calm this place is.", "user", None),
    ("I like the second idea.", "user", None),
    ("It made me want to travel.", "user", None),
    ("A dog has its own energy needs.", "user", None),
    ("I am busy chasing my goals.", "user", None),
    ("I've always wanted to learn the cello.", "user", "preference"),
    ("My favourite bakery is Gragger in Vienna.", "user", "preference"),
    ("Sure, my customer number is K-20931.", "user", "fact"),
    ("Winning the regional cup is our goal.", "user", "goal"),
    ("I need to inject insulin every evening.", "user", "constraint"),
    ("Your reservation cannot be changed after 1 May.", "assistant", "constraint"),
]


EXTRACTOR = FactExtractor()


def contents(text: str, role: str = "user") -> list[str]:
    return [draft.content for draft in EXTRACTOR.extract(message(text, role))]


def kept_kinds(text: str, role: str) -> list[str]:
    """Of what is extracted, validated and believed enough to be promoted."""
    messages = message(text, role)
    looked_at = [(draft, validate_fact(draft, messages)) for draft in EXTRACTOR.extract(messages)]
    return [str(draft.kind) for draft, result in looked_at if result.is_safe and result.confidence > 0.6]


@pytest.mark.parametrize("table", [TUNED, HELD_OUT, [*TUNED, *HELD_OUT]], ids=["tuned", "held out", "all"])
def test_at_least_95_of_100_are_right_and_90_of_100_are_found_with_their_kind(
    table: list[tuple[str, str, str | None]],
) -> None:
    given = [(kind, kept_kinds(text, role)) for text, role, kind in table]
    right = sum(kinds == [kind] for kind, kinds in given)
    assert right / sum(bool(kinds) for _, kinds in given) >= 0.95
    assert right / sum(kind is not None for kind, _ in given) >= 0.9
    assert len(HELD_OUT) >= 20
    assert len(TUNED) + len(HELD_OUT) >= 60


def test_a_fact_is_the_complete_sentence_verbatim() -> None:
    text = "Hello there! We decided to  pay Dr. Ana Lima\t$1,250.50 via https://pay.example.com/a?b=1. Bye."
    (draft,) = EXTRACTOR.extract(message(text))
    assert draft.content == "We decided to pay Dr. Ana Lima $1,250.50 via https://pay.example.com/a?b=1."
    assert (draft.kind, draft.confidence) == ("decision", 0.8)
    assert draft.mentions == ("Dr. Ana Lima", "$1,250.50", "https://pay.example.com/a?b=1")


def test_mentions_are_names_dates_numbers_and_identifiers() -> None:
    (draft,) = EXTRACTOR.extract(
        message(
            "We decided with Ana Lima to deploy v2.1.0 of order_svc-77 to 10.0.0.7 on 2026-03-01, 3 times a day."
        )
    )
    assert draft.mentions == ("Ana Lima", "v2.1.0", "order_svc-77", "10.0.0.7", "2026-03-01", "3")


def test_tags_are_up_to_three_lowercase_topic_words_with_names_first() -> None:
    (draft,) = EXTRACTOR.extract(message("We decided to move the billing service from Heroku to Hetzner."))
    assert draft.tags == ("heroku", "hetzner", "move")


@pytest.mark.parametrize(
    "sentence",
    [
        "We must keep https://example.com/a.b?c=d alive",
        "We decided on Node.js 20.1.3 for e.g. the API of Dr. Lima",
        "We must pay 3.50 to St. Mary vs. 4.50 to Prof. J. Smith",
        "We need to be there at 9 a.m. on Friday",
    ],
)
def test_sentences_are_not_split_inside_urls_numbers_versions_and_abbreviations(sentence: str) -> None:
    assert contents(f"Hello. {sentence}! Bye.") == [f"{sentence}!"]


def test_each_sentence_becomes_its_own_fact() -> None:
    text = (
        "We chose Go. I prefer tabs! The goal is speed; it must be measured. 我们 decided 用 Go。I like tea."
    )
    assert contents(text) == [
        "We chose Go.",
        "I prefer tabs!",
        "The goal is speed; it must be measured.",
        "我们 decided 用 Go。",
        "I like tea.",
    ]


def test_list_items_are_sentences_without_their_bullets() -> None:
    text = "Notes:\n- We chose Go\n* I prefer tabs\n1. The goal is speed\n## We must test"
    assert contents(text) == ["We chose Go", "I prefer tabs", "The goal is speed", "We must test"]


def test_a_line_starting_in_lower_case_continues_the_previous_one() -> None:
    assert contents("We decided to write\nthe parser in Go.\nBye") == [
        "We decided to write the parser in Go."
    ]
    full = "We decided that the new parser of the billing service costs about"
    assert contents(f"{full}\n$500 a month.") == [f"{full} $500 a month."]


@pytest.mark.parametrize(
    "text",
    [
        "```\nWe decided on Go.\n```",
        "~~~ text\nWe decided on Go.\n~~~",
        "Look:\n```python\n# We decided on Go.\nx = 1",
        "<pre>We decided on Go.</pre>",
        "> We decided on Go.",
        wrap_in_fence(["We decided on Go."]),
        f"Well, {wrap_in_fence(['We decided on Go.'])} yes",
        wrap_in_fence(["We decided on Go."]).removesuffix("</memory>"),
        "Did we decide that we prefer Go?",
        "Should we go with Go",
    ],
)
def test_code_quotes_recalled_memory_and_questions_are_ignored(text: str) -> None:
    assert contents(text) == []


def test_a_sentence_across_a_fence_is_ignored() -> None:
    text = f"We decided on {wrap_in_fence(['tea'])} Go. We chose Rust."
    assert contents(text) == ["We chose Rust."]


@pytest.mark.parametrize("role", ["system", "tool"])
def test_only_user_and_assistant_are_read(role: str) -> None:
    assert contents("We decided on Go.", role) == []
    assert contents("We decided on Go.", "assistant") == ["We decided on Go."]


@pytest.mark.parametrize(
    "text",
    [
        "We decided on that.",
        "I want it.",
        "I prefer the first one.",
        "We need this.",
        "You should.",
        "We must not do so.",
    ],
)
def test_a_sentence_with_only_references_is_ignored(text: str) -> None:
    assert contents(text) == []


@pytest.mark.parametrize(
    ("pointing", "stating"),
    [
        ("Wir haben uns dafür entschieden.", "Wir haben uns für Go entschieden."),
        ("Unser Ziel ist das.", "Unser Ziel ist Tempo."),
        ("Das muss so.", "Das Programm muss schnell sein."),
        ("Das darf nicht.", "Das Programm darf nicht warten."),
        ("Ich mag das auch.", "Ich mag Tee."),
    ],
)
def test_a_german_sentence_with_only_references_is_ignored(pointing: str, stating: str) -> None:
    extractor = FactExtractor((*EXTRACTION_PATTERNS, *GERMAN_PATTERNS))
    found = extractor.extract(message(f"{pointing} {stating}"))
    assert [draft.content for draft in found] == [stating]


def test_the_same_statement_counts_once() -> None:
    assert contents("We chose Go. we chose go! We chose  Go") == ["We chose Go."]


def test_a_message_yields_at_most_twenty_facts() -> None:
    assert len(contents(" ".join(f"We chose plan {n}." for n in range(100)))) == 20


def test_long_sentences_are_truncated_between_words_and_stay_verbatim() -> None:
    text = "We must " + " ".join(f"word{n}" for n in range(300))
    (first, *_) = contents(text)
    assert 380 < len(first) <= 400
    assert text.startswith(first + " ")


def test_only_the_beginning_of_a_long_message_is_read() -> None:
    text = "We chose Go. " + "We must run and see. " * 5_000
    assert contents(text) == ["We chose Go.", "We must run and see."]
    assert contents("x " * 5_000 + "We chose Go.") == []


@pytest.mark.parametrize("unit", MESSAGE_UNITS)
def test_repeated_punctuation_is_not_a_fact(unit: str) -> None:
    assert contents(repeat_to_size(unit, 10_000)) == []


def test_patterns_must_be_rows() -> None:
    rows: Any = ["decided"]
    with pytest.raises(InvalidInputError, match="ExtractionPattern"):
        FactExtractor(rows)


def test_a_custom_finder_determines_the_mentions() -> None:
    (draft,) = FactExtractor(facts=FactFinder(())).extract(message("We chose /etc/hosts with Ana."))
    assert draft.mentions == ("Ana",)


WORDS = st.sampled_from(
    "We I decided chose must cannot prefer like goal is my name Ana 3.5 v1.2.3 https://a.b/c?d e.g. Dr. that ``` "
    "<memory> \n </memory> > - 1. ? ! . 。 , ; \u200b \x00 \ud800 \" ' ( ) to need".split(" ")
)
TEXTS = st.one_of(
    st.text(), st.lists(WORDS, max_size=60).map(" ".join), st.lists(WORDS, max_size=30).map("".join)
)


@given(TEXTS, st.sampled_from(["user", "assistant"]))
def test_facts_of_any_text_are_verbatim_and_contain_their_mentions(text: str, role: str) -> None:
    messages = message(text, role)
    whole = " ".join(messages.content.split())
    drafts = EXTRACTOR.extract(messages)
    assert len(drafts) <= 20
    for draft in drafts:
        assert draft.content in whole
        assert 0 < len(draft.content) <= 400
        assert all(mention and mention in draft.content for mention in draft.mentions)
        assert len(draft.tags) <= 3
        assert 0 <= validate_fact(draft, messages).confidence <= draft.confidence + 0.005
