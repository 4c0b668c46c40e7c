"""Plots show the data correctly, for any data."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import matplotlib.style
import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from langmem_tiers import (
    Entry,
    Hit,
    InvalidConfigError,
    InvalidInputError,
    MemoryContext,
    MemorySystem,
    MemorySystemConfig,
    Message,
    MissingExtraError,
    Role,
    Tier,
    TokenBudget,
)
from langmem_tiers.common.decay import compute_decay
from langmem_tiers.display import plots
from langmem_tiers.episodes import Episode, EpisodeKind, NarrativeArc
from langmem_tiers.long_term import Related, Relation
from langmem_tiers.tuning import TuningParameters, TuningSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tests.display.html_page import Memory

pytestmark = pytest.mark.xdist_group("notebook")  # they share one memory
NOW = datetime(2025, 1, 15, tzinfo=UTC)
HOSTILE = "costs $5, $\\frac{1}{$ \\input{x} 中文 שלום مرحبا 😀 \u202e\x00\n" + "long " * 50


def message(number: int, text: str = "words", tokens: int = 10) -> Message:
    return Message(
        id=f"m{number}", role=Role.USER, content=text, created_at=NOW, token_count=tokens, token_counter="c"
    )


def entry(
    number: int, text: str = "words", *, tier: Tier = Tier.LONG_TERM, days: float = 0, uses: int = 0
) -> Entry:
    return Entry(
        id=f"e{number}", namespace=("alice",), tier=tier, kind="fact", content=text, token_count=10,
        created_at=NOW - timedelta(days=days), access_count=uses,
    )  # fmt: skip


def hit(number: int, text: str = "words", **signals: float) -> Hit:
    given = signals or {"message": 0.3, "meaning": 0.2}
    return Hit(entry=entry(number, text), score=sum(given.values()), signals=given, found_by="message")


def context(number: int = 1, **more: Any) -> MemoryContext:
    said = tuple(message(n) for n in range(number))
    sections = {"conversation": 10 * number, "frame": 3}
    return MemoryContext(
        messages=said, token_count=10 * number + 3, token_budget=10 * number + 20, sections=sections,
        full=tuple(message.id for message in said), **more,
    )  # fmt: skip


def snapshot(number: int, **more: Any) -> TuningSnapshot:
    return TuningSnapshot(
        created_at=NOW + timedelta(hours=number), tokens_before=100, tokens_after=60, entries_compressed=1,
        entries_dropped=0, entries_promoted=0, usage_before=0.9, usage_after=0.6, parameters=TuningParameters(), **more,
    )  # fmt: skip


def episode(number: int, title: str = "It works.", significance: float = 0.8) -> Episode:
    kinds = list(EpisodeKind)
    return Episode(
        kind=kinds[number % len(kinds)], title=title, summary="s", significance=significance, valence=0.5,
        first_turn=number + 1, last_turn=number + 2, id=f"p{number}", namespace=("a",), session="s", created_at=NOW,
    )  # fmt: skip


def story(number: int, title: str = "It works.") -> NarrativeArc:
    episodes = tuple(episode(n, title) for n in range(number))
    third = -(-number // 3)
    return NarrativeArc(
        session=title, turns=number + 2, beginning=episodes[:third], middle=episodes[third : 2 * third],
        end=episodes[2 * third :], key_moments=episodes,
    )  # fmt: skip


def related(number: int, text: str = "words") -> list[Related]:
    found = []
    for n in range(1, number + 1):
        relation = Relation(source=f"e{(n - 1) // 3}", target=f"e{n}", kind=f"kind {n % 3}", created_at=NOW)
        found.append(Related(entry=entry(n, text), depth=1, strength=1.0, path=(relation,)))
    return found


DRAWN: dict[str, Callable[[int, str], Axes]] = {
    "budget": lambda n, _: plots.budget(context(n)),
    "conversation": lambda n, t: plots.conversation(context(n), [message(k, t) for k in range(2 * n)]),
    "usage": lambda n, _: plots.usage([context(k + 1) for k in range(n)]),
    "scores": lambda n, t: plots.scores([hit(k, t) for k in range(n)]),
    "tuning": lambda n, t: plots.tuning([snapshot(k, reason=t) for k in range(n)]),
    "decay": lambda n, t: plots.decay([entry(k, t, days=k) for k in range(n)], now=NOW),
    "arc": lambda n, t: plots.arc(story(n, t.strip())),
    "relations": lambda n, t: plots.relations(entry(0, t), related(n, t)),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize(
    ("number", "style"),
    [
        (0, "dark_background"),
        (5, "default"),
        pytest.param(1, "default", marks=pytest.mark.soak),
        pytest.param(600, "dark_background", marks=pytest.mark.soak),
    ],
)
def test_every_plot_is_drawn_with_no_one_and_many_values(
    name: str, number: int, style: str, tmp_path: Path
) -> None:
    with matplotlib.style.context(style):
        axes = DRAWN[name](number, HOSTILE)  # neither a formula nor a missing letter stops it, or warns
        assert axes.get_title(loc="left")
        target = tmp_path / f"{name}.png"
        drawn_in(axes).savefig(target, dpi=40)
    assert target.read_bytes().startswith(b"\x89PNG")


def drawn_in(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


@pytest.mark.parametrize("name", DRAWN)
def test_a_plot_is_drawn_into_the_given_axes(name: str) -> None:
    assert set(DRAWN) == set(plots.__all__)
    axes = Figure().add_subplot()
    taken: dict[str, Callable[[], Axes]] = {
        "budget": lambda: plots.budget(context(2), ax=axes),
        "conversation": lambda: plots.conversation(context(2), [], ax=axes),
        "usage": lambda: plots.usage([], ax=axes),
        "scores": lambda: plots.scores([], ax=axes),
        "tuning": lambda: plots.tuning([snapshot(1)], ax=axes),
        "decay": lambda: plots.decay(ax=axes),
        "arc": lambda: plots.arc(story(1), ax=axes),
        "relations": lambda: plots.relations(entry(0), related(1), ax=axes),
    }
    assert taken[name]() is axes


@pytest.mark.soak
def test_a_notebook_shows_the_axes_as_png_without_pyplot() -> None:
    look = (
        "import sys\n"
        "from langmem_tiers.display import plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "axes = plots.decay()\n"
        "assert axes._repr_png_().startswith(b'\\x89PNG')\n"
        "print('matplotlib.pyplot' in sys.modules)\n"
    )
    child = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert (child.stdout, child.returncode) == ("False\n", 0), child.stderr


def widths(axes: Axes) -> list[float]:
    return [patch.get_width() for patch in axes.patches]  # type: ignore[attr-defined]  # rectangles


def labels(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def offsets(axes: Axes) -> list[tuple[float, float]]:
    """Where the points of a picture stand."""
    clouds = [collection for collection in axes.collections if isinstance(collection, PathCollection)]
    return [(float(x), float(y)) for cloud in clouds for x, y in np.asarray(cloud.get_offsets())]


def test_the_budget_plot_contains_sections_tiers_and_free_tokens(memory: Memory) -> None:
    built = memory.session.build_context(budget=TokenBudget.of(700))
    axes = plots.budget(built)
    sections = [tokens for tokens in built.sections.values() if tokens]
    free = built.token_budget - built.token_count
    by_row: dict[int, list[float]] = {}
    for patch in axes.patches:
        by_row.setdefault(round(patch.get_y()), []).append(patch.get_width())  # type: ignore[attr-defined]
    assert sorted(by_row[1]) == sorted([*sections, free])
    assert sum(by_row[0]) == built.token_budget  # tiers share exactly what there is
    assert axes.get_xlim() == (0, 700)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["by tier", "by section"]
    assert f"conversation: {built.sections['conversation']:,}" in labels(axes)
    assert any(label.startswith("short term: ") for label in labels(axes))
    assert axes.get_xlabel() == "tokens"


def test_memories_are_labeled_by_their_tiers() -> None:
    told = (hit(1), Hit(entry=entry(2, tier=Tier.EPISODIC), score=1, signals={"a": 1.0}, found_by="a"))
    built = MemoryContext(
        messages=(), token_count=33, token_budget=50, sections={"memories": 21, "known": 12}, recalled=told
    )
    shown = labels(plots.budget(built))
    assert {"memories: 21", "known: 12", "knowledge: 12", "free: 17"} <= set(shown)
    shares = [int(label.split(": ")[1]) for label in shown if label.startswith(("long term", "episodic"))]
    assert sorted(shares) == [10, 11]


def test_the_whole_window_includes_the_reserves() -> None:
    window = TokenBudget(context_tokens=1000, system_tokens=100, response_tokens=200, tools_tokens=50)
    axes = plots.budget(context(3), window=window)
    assert {"system: 100", "tools: 50", "answer: 200", "memory: 33", "free: 617"} <= set(labels(axes))
    assert axes.get_xlim() == (0, 1000)


def test_the_context_of_a_memory_system_can_be_plotted(tmp_path: Path) -> None:
    with MemorySystem(MemorySystemConfig(memory_dir=tmp_path)) as system:
        system.start_conversation("c")
        system.add_message("user", "We chose PostgreSQL.")
        built = system.build_context("You are kind.")
        axes = plots.budget(built)
    used = sum(item.token_count for item in built.allocation.items)
    assert axes.get_title(loc="left").startswith(f"{used:,} of ")
    assert any(label.startswith("message: ") for label in labels(axes))


def test_a_system_prompt_has_the_color_of_the_frame_and_messages_that_of_the_conversation(
    tmp_path: Path,
) -> None:
    with MemorySystem(MemorySystemConfig(memory_dir=tmp_path)) as system:
        system.start_conversation("c")
        system.add_message("user", "We chose PostgreSQL.")
        by_kind = colors_by_label(plots.budget(system.build_context(system_prompt="You are kind.")))
    by_section = colors_by_label(plots.budget(context(2)))
    assert by_kind["system prompt"] == by_section["frame"]
    assert by_kind["message"] == by_section["conversation"]
    assert by_section["frame"] != by_section["conversation"]


def colors_by_label(axes: Axes) -> dict[str, str]:
    return {
        label.split(": ")[0]: to_hex(handle.get_facecolor())
        for label, handle in zip(labels(axes), axes.get_legend().legend_handles, strict=True)  # type: ignore[union-attr]
    }


def test_a_conversation_plot_shows_the_state_of_each_message() -> None:
    said = [message(n, tokens=100) for n in range(9)]
    said[0] = replace(said[0], is_compressed=True)
    short = Message(id="m3", role=Role.USER, content="w", created_at=NOW, token_count=20, token_counter="c")
    summary = Message(
        id="s",
        role=Role.SYSTEM,
        content="[CONTEXT SUMMARY]\nx",
        created_at=NOW,
        token_count=5,
        token_counter="c",
    )
    built = MemoryContext(
        messages=(summary, short, said[4]), token_count=125, token_budget=200, full=("m4",), compressed=("m3",),
        dropped=("m1", "m2", "m6"),
        reasons={
            "m1": "did not fit", "m2": "archived", "m5": "recalled: score 1.00, found by a",
            "m6": "summarized: score 0.50, found by a", "elsewhere/m7": "recalled: score 1.00, found by a",
        },
        recalled=tuple(
            Hit(entry=Entry(**{**as_dict(entry(5)), **named}), score=1, signals={"a": 1.0}, found_by="a")
            for named in ({"id": "m5", "session": "s"}, {"id": "m7", "session": "elsewhere"})
        ),
    )  # fmt: skip
    axes = plots.conversation(built, [summary, *said])
    assert labels(axes) == [
        "in full: 1", "compressed: 1", "saved by compression", "recalled: 1", "summarized: 1",
        "replaced by a summary: 1", "archived: 1", "did not fit: 1", "not shown: 2",
    ]  # fmt: skip
    heights = {
        label.split(":")[0]: [bar.get_height() for bar in bars]
        for label, bars in zip(labels(axes), axes.containers, strict=True)
    }
    assert heights["compressed"] == [0, 0, 0, 20, 0, 0, 0, 0, 0]
    assert heights["saved by compression"] == [0, 0, 0, 80, 0, 0, 0, 0, 0]
    assert heights["did not fit"] == [0, 100, 0, 0, 0, 0, 0, 0, 0]
    assert heights["recalled"] == [0, 0, 0, 0, 0, 100, 0, 0, 0]
    assert heights["replaced by a summary"] == [100, 0, 0, 0, 0, 0, 0, 0, 0]
    assert sum(map(sum, heights.values())) == 900
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("message", "original tokens")


def as_dict(one: Entry) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("namespace", "tier", "kind", "content", "created_at")}


def test_a_long_conversation_is_drawn_as_few_bars_with_the_same_total(memory: Memory) -> None:
    said = [message for message in memory.session.messages() if not message.is_summary]
    built = memory.session.build_context(budget=TokenBudget.of(700))
    axes = plots.conversation(built, said)
    counts = [int(label.split(": ")[1]) for label in labels(axes) if ": " in label]
    assert sum(counts) == len(said) == 121
    assert len(axes.containers[0]) == 61  # two in a bar
    assert "2 per bar" in axes.get_xlabel()
    assert sum(patch.get_height() for patch in axes.patches) == sum(message.token_count for message in said)  # type: ignore[attr-defined]


def test_usage_is_updated_after_each_turn(memory: Memory) -> None:
    turns = [memory.session.build_context(budget=TokenBudget.of(tokens)) for tokens in (500, 700, 900)]
    axes = plots.usage(turns)
    stairs = [patch for patch in axes.patches if isinstance(patch, StepPatch)]
    assert list(stairs[-1].get_data()[0]) == [500, 700, 900]
    assert list(stairs[-2].get_data()[0]) == [message.token_count for message in turns]
    assert labels(axes)[0] == "budget"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("turn", "tokens")


def test_scores_are_stacked_by_signal(memory: Memory) -> None:
    recall = memory.namespace.recall("What is my dog called?", limit=6)
    axes = plots.scores(recall)
    ends = [0.0] * 6
    for bars in axes.containers:
        for place, bar in enumerate(bars):
            ends[place] += bar.get_width()
    assert ends == pytest.approx([hit.score for hit in recall])
    assert len(axes.get_yticklabels()) == 6
    assert [text.get_text() for text in axes.texts] == [f"{hit.score:.2f}" for hit in recall]
    assert "What is my dog called?" in axes.get_title(loc="left")
    given = {name.replace("_", " ") for hit in recall for name, value in hit.signals.items() if value}
    assert set(labels(axes)) == given


def test_negative_signals_of_a_hit_extend_to_the_left() -> None:
    axes = plots.scores([hit(1, message=0.5, meaning=-0.2)])
    assert sorted(widths(axes)) == [-0.2, 0.5]
    assert [patch.get_x() for patch in axes.patches] == [0, 0]  # type: ignore[attr-defined]


def test_more_hits_than_fit_are_counted() -> None:
    axes = plots.scores([hit(n) for n in range(50)], limit=5)
    assert len(axes.get_yticklabels()) == 5
    assert "50 hits, 45 more not drawn" in axes.get_title(loc="left")


def test_more_signals_than_colors_stay_distinguishable() -> None:
    axes = plots.scores(
        [Hit(entry=entry(1), score=2.0, signals={f"s{n}": 0.1 for n in range(20)}, found_by="s0")]
    )
    looks = {(patch.get_facecolor(), patch.get_hatch()) for patch in axes.patches}
    assert len(looks) == 20


def test_tuning_shows_each_run_in_its_order(memory: Memory) -> None:
    history = memory.engine.optimizer.history("alice")
    axes = plots.tuning(history)
    line = axes.get_lines()[1]
    assert list(line.get_ydata()) == [run.usage_after for run in reversed(history)]  # type: ignore[arg-type]
    assert "messages in full (right)" in labels(axes)
    assert ("reverted" in labels(axes)) == any(run.is_reverted for run in history)
    assert axes.get_xlabel() == "time (UTC)"
    saved = sum(run.tokens_saved for run in history)
    assert f"saved {saved:,} tokens" in axes.get_title(loc="left")


def test_tuning_labels_reverted_runs_and_counts_runs_of_equal_time() -> None:
    still = [snapshot(0), snapshot(0, is_reverted=True)]
    axes = plots.tuning(still)
    assert axes.get_xlabel() == "run"
    assert labels(axes)[-1] == "reverted"


def test_reverted_runs_have_the_color_of_the_compression_trigger() -> None:
    axes = plots.tuning([snapshot(0), snapshot(1, is_reverted=True)])
    handles = dict(zip(labels(axes), axes.get_legend().legend_handles, strict=True))  # type: ignore[union-attr]
    trigger, reverted = handles["compression trigger"], handles["reverted"]
    assert to_hex(reverted.get_facecolor()[0]) == to_hex(trigger.get_color())


def test_neither_axis_of_the_tuning_plot_draws_a_line_at_the_top() -> None:
    axes = plots.tuning([snapshot(0), snapshot(1)])
    assert len(drawn_in(axes).axes) == 2  # the second one counts messages
    assert not any(drawn.spines["top"].get_visible() for drawn in drawn_in(axes).axes)


def test_the_decay_plot_matches_the_formula_and_shows_entries() -> None:
    entries = [entry(1, days=30), entry(2, days=60, uses=1)]
    axes = plots.decay(entries, now=NOW)
    curve = axes.get_lines()[0]
    days, left = np.asarray(curve.get_xdata()).tolist(), np.asarray(curve.get_ydata()).tolist()
    assert left == [compute_decay(day, 0) for day in days]
    assert offsets(axes) == pytest.approx([(30, 0.5), (60, 0.35)])
    assert "entries: 2" in labels(axes)
    assert axes.get_xlabel() == "days since last use"
    with pytest.raises(InvalidConfigError, match="half_life_days"):
        plots.decay(half_life_days=0)


def test_an_arc_shows_each_episode_and_names_key_moments(memory: Memory) -> None:
    arc = memory.session.arc()
    axes = plots.arc(arc, named=3)
    shown = [*arc.beginning, *arc.middle, *arc.end]
    assert len(offsets(axes)) == len(shown)
    assert sum(label[:1] in "123" and label[1:3] == "  " for label in labels(axes)) == 3
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("turn", "significance")
    assert f"{len(arc.key_moments)} key moments" in axes.get_title(loc="left")


def test_axes_without_data_show_a_note_and_no_scale() -> None:
    axes = plots.relations(entry(0), related(0))
    assert not axes.axison
    assert "no relations" in axes.texts[0].get_text()


def test_relations_lead_from_entry_to_entry(memory: Memory) -> None:
    start = memory.entries[0]
    found = memory.namespace.long_term.related(start.id, depth=2)
    axes = plots.relations(start, found)
    said = [text.get_text() for text in axes.texts if text.get_text()]
    assert said == [start.content, *(related.entry.content for related in found)]
    arrows = [text for text in axes.texts if text.get_text() == ""]
    assert len(arrows) == len({relation for related in found for relation in related.path})
    assert labels(axes) == ["part of", "supports"]


def test_no_two_entries_of_a_graph_overlap() -> None:
    axes = plots.relations(entry(0), related(40))
    places = offsets(axes)
    assert len(places) == 41
    nearest = min(abs(a[0] - b[0]) + abs(a[1] - b[1]) for n, a in enumerate(places) for b in places[:n])
    assert nearest > 0.05
    assert "100 entries" in plots.relations(entry(0), related(100), limit=10).get_title(loc="left")


def test_plot_labels_are_literal_and_short() -> None:
    axes = plots.scores([hit(1, HOSTILE)])
    (label,) = axes.get_yticklabels()
    assert not label.get_parse_math()
    assert not label.get_usetex()
    assert len(label.get_text()) <= 48
    assert label.get_text().startswith("costs $5, $\\frac{1}{$ \\input{x}")


@pytest.mark.parametrize("wrong", [None, "text", 3])
def test_an_object_that_is_not_a_context_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="build_context"):
        plots.budget(wrong)
    with pytest.raises(InvalidInputError, match="matplotlib axes"):
        plots.scores([], ax="figure")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, "text", [3]])
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("usage", "MemoryContext objects"),
        ("scores", "Hit objects"),
        ("tuning", "TuningSnapshot objects"),
        ("decay", "Entry objects"),
        ("arc", "NarrativeArc objects"),
    ],
)
def test_an_unsupported_object_is_named_with_the_expected_type(name: str, wanted: str, wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match=rf"expected {wanted}, got \w+: pass the result of .*\(\w*\)"):
        getattr(plots, name)(wrong)


def test_a_usage_without_end_and_a_time_without_a_zone_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="usage of inf before and 0.6 after"):
        plots.tuning([snapshot(0), replace(snapshot(1), usage_before=float("inf"))])
    with pytest.raises(InvalidInputError, match="has no time zone"):
        plots.decay([entry(1)], now=NOW.replace(tzinfo=None))


@pytest.mark.parametrize("name", DRAWN)
def test_without_matplotlib_the_error_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'langmem-tiers\[notebook\]'"):
        DRAWN[name](1, "words")


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """As WCAG has it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: Sequence[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colors_have_contrast_on_light_and_dark_backgrounds() -> None:
    from matplotlib.colors import to_rgb

    from langmem_tiers.display.plots.drawing import COLORS, GRAY

    for colour in (*COLORS, GRAY):
        assert contrast(to_rgb(colour), (1, 1, 1)) >= 1.9
        assert contrast(to_rgb(colour), (0, 0, 0)) >= 3
