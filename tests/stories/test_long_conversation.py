"""3,000 messages in 8,000 tokens with the optimizer."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from benchmarks.conversations import MadeUpConversation
from benchmarks.replay import BAND, MESSAGES, TOKENS, Replay

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    folder: Path = tmp_path_factory.mktemp("replay")
    replay = Replay()
    replay.play(islice(MadeUpConversation().messages(), MESSAGES), folder)
    return replay


@pytest.mark.soak
@pytest.mark.xdist_group("replay")
class TestReplay:
    def test_the_replay_has_3000_messages_and_a_budget_of_8000_tokens(self, replay: Replay) -> None:
        assert (len(replay.usage), TOKENS) == (3000, 8000)
        assert replay.total_tokens[-1] > 10 * TOKENS

    def test_no_context_exceeds_the_budget(self, replay: Replay) -> None:
        assert replay.over_budget == 0
        assert max(replay.usage) <= 1

    def test_usage_reaches_its_band_and_stays_there(self, replay: Replay) -> None:
        usage = [snapshot.usage_after for snapshot in replay.snapshots]
        assert all(BAND[0] <= value <= BAND[1] for value in usage[15:])
        assert all(BAND[0] <= value <= BAND[1] for value in replay.usage[300:])

    def test_parameters_stay_in_range(self, replay: Replay) -> None:
        for snapshot in replay.snapshots:
            assert snapshot.parameters == snapshot.parameters.clamped()

    def test_a_restart_continues_from_the_learned_state(self, replay: Replay) -> None:
        assert replay.continued
        assert replay.snapshots[0].parameters != replay.snapshots[-1].parameters
