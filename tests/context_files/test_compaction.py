"""The limits of compaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from langmem_tiers import CharCounter, Summarizer
from langmem_tiers.config import SummaryConfig, SummaryStrategy
from langmem_tiers.context_files.compaction import SUMMARY_HEADING, compact
from langmem_tiers.context_files.models import ActiveTask, ContextData, HistoryEntry
from langmem_tiers.context_files.store_models import CompactionConfig
from langmem_tiers.testing import ScriptedLLM
from tests.context_files.test_context_data import CONTEXTS
from tests.work_counters import count_function_calls

if TYPE_CHECKING:
    from langmem_tiers.common.json_values import JsonValue

NOW = datetime(2024, 2, 23, 12, 0, tzinfo=UTC)
DAY = 86_400
SECONDS = int(NOW.timestamp())


def build_conversation(count: int, tokens: int | None = 5) -> ContextData:
    """Turns by user and assistant in turn, the first one is Message 1."""
    entries = tuple(
        HistoryEntry(1000 + n, "assistant", f"Response {(n + 1) // 2}", tokens)
        if n % 2
        else HistoryEntry(1000 + n, "user", f"Message {n // 2 + 1}", tokens)
        for n in range(count)
    )
    return ContextData(session_id="s", recent_history=entries)


@pytest.mark.parametrize(("count", "left"), [(0, 0), (30, 30), (50, 50), (51, 30), (52, 30), (200, 30)])
def test_more_than_50_entries_are_reduced_to_the_newest_30(count: int, left: int) -> None:
    before = build_conversation(count)
    report = compact(before, now=NOW)
    assert len(report.context.recent_history) == left
    assert report.context.recent_history == before.recent_history[count - left :]
    assert report.by_length == report.summarized == count - left
    assert report.is_compacted == (count > 50)


def test_the_summary_matches_the_design() -> None:
    summary = compact(build_conversation(51), now=NOW).context.long_term_summary
    assert summary.startswith(
        "Previous conversation summary:\n- user: Message 1\n- assistant: Response 1\n- user: "
    )
    assert len(summary.split("\n")) == 1 + (51 - 30)
    assert summary.endswith("\n- user: Message 11")


def test_a_later_summary_is_appended_to_the_earlier_one() -> None:
    first = compact(build_conversation(51), now=NOW).context
    more = replace(first, recent_history=(*first.recent_history, *build_conversation(60).recent_history))
    second = compact(more, now=NOW)
    assert second.context.long_term_summary == f"{first.long_term_summary}\n\n{second.summary}"
    assert second.by_length == 60
    assert second.context.long_term_summary.count(SUMMARY_HEADING) == 2


@pytest.mark.parametrize(
    ("count", "each", "left"),
    [(4, 25_000, 4), (4, 25_001, 2), (5, 20_001, 3), (1, 1_000_000, 1), (40, 2500, 40), (40, 2501, 20)],
)
def test_more_than_100_000_tokens_are_reduced_to_the_newer_half(count: int, each: int, left: int) -> None:
    report = compact(build_conversation(count, each), now=NOW)
    assert len(report.context.recent_history) == left
    assert (report.by_length, report.by_tokens) == (0, count - left)
    assert (report.tokens_before, report.tokens_after) == (count * each, left * each)


def test_tokens_are_checked_after_the_length() -> None:
    report = compact(build_conversation(60, 3000), now=NOW)  # 180,000; of the newest 30 it is 90,000
    assert (report.by_length, report.by_tokens) == (30, 0)
    report = compact(build_conversation(60, 4000), now=NOW)  # 240,000; of the newest 30 it is 120,000
    assert (report.by_length, report.by_tokens) == (30, 15)
    assert len(report.context.recent_history) == 15
    assert report.context.long_term_summary.count("\n- ") == 45


def test_uncounted_entries_count_0_tokens_without_a_counter() -> None:
    context = build_conversation(4, None)
    long = replace(
        context, recent_history=tuple(replace(e, content="x" * 120_000) for e in context.recent_history)
    )
    assert not compact(long, now=NOW).is_compacted
    report = compact(long, now=NOW, counter=CharCounter())
    assert (report.tokens_before, report.by_tokens) == (120_000, 2)


def test_forced_compaction_keeps_the_newest_30_of_fewer_than_50() -> None:
    report = compact(build_conversation(45), now=NOW, force=True)
    assert (report.by_length, len(report.context.recent_history)) == (15, 30)
    assert compact(build_conversation(30), now=NOW, force=True).summarized == 0


def test_the_limits_can_be_set() -> None:
    report = compact(
        build_conversation(31), now=NOW, config=CompactionConfig(max_history=30, keep_history=10)
    )
    assert len(report.context.recent_history) == 10
    assert not compact(
        build_conversation(100), now=NOW, config=CompactionConfig(max_history=100)
    ).is_compacted
    assert compact(build_conversation(4), now=NOW, config=CompactionConfig(max_tokens=19)).by_tokens == 2


def test_facts_are_sorted_and_unique() -> None:
    context = ContextData(session_id="s", facts=("b", "a", "é", "B", "b", "a"))
    report = compact(context, now=NOW)
    assert report.context.facts == ("B", "a", "b", "é")
    assert report.duplicate_facts == 2
    assert report.is_compacted


def test_running_tasks_are_kept_and_completed_ones_for_24_hours() -> None:
    def task(name: str, status: str, age: int) -> ActiveTask:
        return ActiveTask(name, "", status, 0.5, 0, SECONDS - age)

    context = ContextData(
        session_id="s",
        active_tasks=(
            task("old but running", "Running", 100 * DAY),
            task("young", "Completed", DAY - 1),
            task("a day", "Completed", DAY),
            task("older", "Completed", DAY + 1),
            task("waiting", "Pending", 9 * DAY),
            task("lower case", "completed", 2 * DAY),
        ),
    )
    report = compact(context, now=NOW)
    assert [task.id for task in report.context.active_tasks] == ["old but running", "young", "waiting"]
    assert report.pruned_tasks == ("a day", "older", "lower case")
    longer = compact(context, now=NOW, config=CompactionConfig(completed_hours=72))
    assert longer.pruned_tasks == ()


def test_compaction_changes_nothing_else_and_not_the_given_context() -> None:
    context = (
        build_conversation(60)
        .with_tool_call("echo")
        .with_token_usage(input_tokens=3)
        .with_environment("/w", at=5)
    )
    context = replace(context, system_state={"x": 1}, extra={"theirs": 2}, based_on="abc")
    after = compact(context, now=NOW).context
    for name in ("system_state", "tool_stats", "token_usage", "last_known_environment", "extra", "based_on"):
        assert getattr(after, name) == getattr(context, name)
    assert len(context.recent_history) == 60


def test_a_long_entry_is_truncated_and_keeps_its_facts() -> None:
    long = "word " * 100 + "see https://grafana.example/d/7 and mail ops@example.org"
    context = build_conversation(50).with_message("user", "x", at=0)
    context = replace(context, recent_history=(HistoryEntry(1, "user", long, 9), *context.recent_history))
    line = compact(context, now=NOW).context.long_term_summary.split("\n")[1]
    assert line.startswith("- user: word word")
    assert "https://grafana.example/d/7" in line
    assert "ops@example.org" in line
    assert len(line) < 400


def test_a_tool_call_and_its_result_are_not_separated() -> None:
    entries = list(build_conversation(60).recent_history)
    call: list[JsonValue] = [{"id": "c1", "name": "t", "arguments": "{}"}]
    entries[29] = HistoryEntry(1, "assistant", "", 5, {"tool_calls": call})
    entries[30] = HistoryEntry(2, "tool", "result", 5, {"tool_call_id": "c1"})
    report = compact(ContextData(session_id="s", recent_history=tuple(entries)), now=NOW)
    assert report.by_length == 29
    assert report.context.recent_history[0].extra["tool_calls"] == call


def test_a_model_writes_the_summary() -> None:
    config = CompactionConfig(max_history=8, keep_history=4)
    model = ScriptedLLM(["They greeted each other."])
    report = compact(
        build_conversation(9), now=NOW, config=config, summarizer=Summarizer(CharCounter(), model)
    )
    assert report.strategy is SummaryStrategy.HIERARCHICAL
    assert report.problems == ()
    assert report.context.long_term_summary.startswith(f"{SUMMARY_HEADING}\nThey greeted each other.")
    assert "Message 1" in model.prompts[0]


def test_facts_without_space_in_the_summary_of_a_model_are_reported() -> None:
    said = " ".join(f"https://example.com/releases/{n}" for n in range(30))
    context = ContextData(session_id="s", recent_history=(HistoryEntry(1, "user", said, 5),) * 9)
    limits = CompactionConfig(max_history=8, keep_history=4)
    model = ScriptedLLM(["They released it."])
    summarizer = Summarizer(CharCounter(), model, config=SummaryConfig(target_tokens=60))
    report = compact(context, now=NOW, config=limits, summarizer=summarizer)
    assert report.strategy is SummaryStrategy.HIERARCHICAL
    assert "https://example.com/releases/0" in report.missing_facts
    assert not any(fact in report.summary.replace(",", " ").split() for fact in report.missing_facts)


@pytest.mark.parametrize("answer", [RuntimeError("down"), "", "x" * 100_000])
def test_a_failed_model_is_replaced_by_extracted_lines_and_reported(
    answer: str | BaseException,
) -> None:
    config = CompactionConfig(max_history=8, keep_history=4)
    failing = Summarizer(CharCounter(), ScriptedLLM([answer]))
    report = compact(build_conversation(9), now=NOW, config=config, summarizer=failing)
    assert report.strategy is SummaryStrategy.EXTRACTIVE
    assert report.problems
    assert report.context == compact(build_conversation(9), now=NOW, config=config).context


def test_a_summary_that_is_too_long_is_summarized_again() -> None:
    config, context = CompactionConfig(max_summary_tokens=1000), ContextData(session_id="s")
    for round_ in range(20):
        entries = tuple(
            HistoryEntry(
                n, "user", f"In round {round_} step {n} we looked at the port 8{round_:02}{n:02}.", 9
            )
            for n in range(60)
        )
        context = replace(context, recent_history=entries)
        report = compact(context, now=NOW, config=config)
        context = report.context
        assert len(context.long_term_summary) // 4 <= 1000
    assert report.is_condensed
    assert context.long_term_summary.startswith(SUMMARY_HEADING)


def test_a_new_part_that_alone_exceeds_the_limit_is_condensed() -> None:
    said = tuple(
        HistoryEntry(n, "user", f"In step {n} we looked at the port {9000 + n}.", 9) for n in range(80)
    )
    report = compact(
        ContextData(session_id="s", long_term_summary="They met.", recent_history=said),
        now=NOW,
        config=CompactionConfig(max_summary_tokens=300),
    )
    assert len(report.summary) // 4 > 300
    assert report.is_condensed
    assert report.context.long_term_summary.count("They met.") == 1
    assert len(report.context.long_term_summary) // 4 <= 300


def test_an_earlier_summary_is_condensed_if_it_is_too_long_only_with_the_new_part() -> None:
    lines = [f"- user: In step {n} we looked at the port {8000 + n} of the server." for n in range(45)]
    earlier = "\n".join([SUMMARY_HEADING, *lines])
    said = tuple(
        HistoryEntry(n, "user", f"In step {n} we looked at the port {9000 + n}.", 9) for n in range(51)
    )
    context = ContextData(session_id="s", long_term_summary=earlier, recent_history=said)
    report = compact(context, now=NOW, config=CompactionConfig(max_summary_tokens=800))
    assert len(earlier) // 4 <= 800 < len(f"{earlier}\n\n{report.summary}") // 4
    assert report.is_condensed
    # Only the earlier part is shortened.
    assert report.context.long_term_summary.endswith(f"\n\n{report.summary}")
    assert len(report.context.long_term_summary) // 4 <= 800


def test_compacting_a_compacted_context_changes_nothing() -> None:
    once = compact(build_conversation(120, 4000), now=NOW).context
    again = compact(once, now=NOW)
    assert not again.is_compacted
    assert again.context == once


@given(CONTEXTS)
def test_any_context_can_be_compacted(context: ContextData) -> None:
    config = CompactionConfig(max_history=2, keep_history=1, max_tokens=50)
    report = compact(context, now=NOW, config=config, counter=CharCounter())
    assert len(report.context.recent_history) + report.summarized == len(context.recent_history)
    assert set(report.context.facts) == set(context.facts)
    assert {task.id for task in context.active_tasks} == {
        *(task.id for task in report.context.active_tasks),
        *report.pruned_tasks,
    }


@pytest.mark.parametrize("count", [60, 120])
def test_compaction_counts_each_entry_once_and_kept_entries_twice_more(count: int) -> None:
    counter = _CountingCounter()
    assert (
        len(compact(build_conversation(count, None), now=NOW, counter=counter).context.recent_history) == 30
    )
    assert counter.calls == count + 2 * 30


def test_twice_as_many_entries_take_twice_as_many_calls_to_compact() -> None:
    said = "In step {} we looked at the gate and wrote down what we saw. "
    entries = tuple(HistoryEntry(n, "user", said.format(n) * 4, 60) for n in range(230))
    whole = ContextData(session_id="s", recent_history=entries)
    half = replace(whole, recent_history=entries[:130])  # 200 and 100 entries are summarized
    compact(half, now=NOW)  # patterns are compiled once
    assert count_function_calls(lambda: compact(whole, now=NOW)) < 2.2 * count_function_calls(
        lambda: compact(half, now=NOW)
    )


class _CountingCounter(CharCounter):
    calls = 0

    def count(self, text: str) -> int:
        self.calls += 1
        return super().count(text)
