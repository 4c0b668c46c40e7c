"""Merging and comparing contexts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from langmem_tiers.context_files.models import ContextData, HistoryEntry
from langmem_tiers.context_files.versions import diff_contexts, merge_contexts
from tests.context_files.test_context_data import CONTEXTS

BASE = (
    ContextData(session_id="s", system_state={"a": 1, "deep": {"x": 1}}, long_term_summary="Before.")
    .with_message("user", "hello", at=1)
    .with_fact("old", "older")
    .with_task("t1", "first", at=1)
    .with_task("t2", "second", at=1)
    .with_tool_call("echo")
    .with_token_usage(input_tokens=10)
)


def test_additions_of_both_sides_are_merged_and_counts_add_up() -> None:
    theirs = BASE.with_message("user", "theirs", at=2).with_fact("t").with_tool_call("echo", failed=True)
    ours = BASE.with_message("assistant", "ours", at=3).with_fact("o").with_tool_call("read")
    theirs = theirs.with_token_usage(input_tokens=5)
    ours = ours.with_token_usage(output_tokens=7)
    merged = merge_contexts(BASE, theirs, ours)
    assert [entry.content for entry in merged.recent_history] == ["hello", "theirs", "ours"]
    assert merged.facts == ("old", "older", "t", "o")
    assert merged.tool_stats.total_calls == 3
    assert dict(merged.tool_stats.by_tool) == {"echo": 2, "read": 1}
    assert merged.tool_stats.failures == 1
    assert (merged.token_usage.total_input, merged.token_usage.total_output) == (15, 7)
    assert merged.token_usage.by_session == 22


def test_removals_of_one_side_are_merged() -> None:
    theirs = replace(BASE, facts=("older",), active_tasks=BASE.active_tasks[1:], recent_history=())
    merged = merge_contexts(BASE, theirs, BASE.with_fact("new"))
    assert merged.facts == ("older", "new")
    assert [task.id for task in merged.active_tasks] == ["t2"]
    assert merged.recent_history == ()


def test_the_later_update_of_a_task_wins() -> None:
    theirs = BASE.with_task("t1", at=9, status="Completed")
    ours = BASE.with_task("t1", at=5, progress=0.5).with_task("t2", at=6, progress=0.7)
    tasks = {task.id: task for task in merge_contexts(BASE, theirs, ours).active_tasks}
    assert (tasks["t1"].status, tasks["t2"].progress) == ("Completed", 0.7)


def test_states_are_merged_by_their_keys_and_ours_decides() -> None:
    theirs = replace(BASE, system_state={"a": 2, "deep": {"x": 1, "y": 2}, "new": 1})
    ours = replace(BASE, system_state={"a": 3, "deep": {"x": 5}})
    assert merge_contexts(BASE, theirs, ours).system_state == {"a": 3, "deep": {"x": 5, "y": 2}, "new": 1}
    gone = replace(BASE, system_state={"deep": {"x": 1}})
    assert merge_contexts(BASE, BASE, gone).system_state == {"deep": {"x": 1}}


def test_both_summaries_are_kept() -> None:
    theirs = replace(BASE, long_term_summary="Before.\n\nTheirs.")
    ours = replace(BASE, long_term_summary="Before.\n\nOurs.")
    assert merge_contexts(BASE, theirs, ours).long_term_summary == "Before.\n\nTheirs.\n\nOurs."
    assert merge_contexts(BASE, theirs, BASE).long_term_summary == "Before.\n\nTheirs."
    assert merge_contexts(BASE, BASE, ours).long_term_summary == "Before.\n\nOurs."


@given(CONTEXTS, CONTEXTS)
def test_a_change_of_one_side_only_is_merged_unchanged(base: ContextData, other: ContextData) -> None:
    merged = merge_contexts(base, base, base)
    assert merged.facts == base.facts
    assert sorted(map(str, merged.recent_history)) == sorted(map(str, base.recent_history))
    assert merge_contexts(base, other, base).long_term_summary == other.long_term_summary
    assert merge_contexts(base, base, other).token_usage.total_input == other.token_usage.total_input


def test_a_diff_lists_additions_and_removals() -> None:
    newer = BASE.with_message("user", "again", at=2).with_message("user", "again", at=2).with_fact("new")
    newer = replace(newer.with_task("t2", at=9), facts=("new", "old"))
    diff = diff_contexts(BASE, newer, (3, 4))
    assert (diff.older, diff.newer) == (3, 4)
    assert diff.changed == ("facts", "recent_history", "active_tasks")
    assert (diff.facts_added, diff.facts_removed) == (("new",), ("older",))
    assert diff.history_added == (HistoryEntry(2, "user", "again", 1),) * 2
    assert diff.history_removed == ()
    assert diff.tasks_changed == ("t2",)
    assert diff.text.startswith("--- version 3\n+++ version 4\n")
    assert '+    "new",\n' in diff.text


def test_equal_contexts_have_an_empty_diff() -> None:
    diff = diff_contexts(BASE, BASE)
    assert (diff.changed, diff.text, diff.tasks_changed) == ((), "", ())
