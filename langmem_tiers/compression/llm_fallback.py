"""Asking a language model that may raise, hang, say nothing or say far too much."""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.ports import LanguageModel

_log = logging.getLogger("langmem_tiers")
MAX_CHARACTERS_PER_TOKEN = 16
"""An answer longer than this for each token that was asked for is nonsense."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What came back: a text, or what went wrong."""

    text: str = ""
    problem: str | None = None


class BoundedModel:
    """A language model with a time limit and a limit on what is taken from it.

    A call that does not come back cannot be ended: its thread is left behind, and nothing more is
    asked until it returns, so that threads do not pile up.

    Args:
        model: The model.
        time_limit_seconds: How long to wait for all answers that one summary needs.
        parallel: Questions that are asked at the same time.
    """

    def __init__(self, model: LanguageModel, *, time_limit_seconds: float, parallel: int = 4) -> None:
        self._model = model
        self._time_limit_seconds = time_limit_seconds
        self._max_parallel = parallel
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._hanging_threads: list[threading.Thread] = []

    def compute_deadline(self) -> float:
        """When the time for one summary that begins now is over."""
        return self._clock.monotonic() + self._time_limit_seconds

    def ask(
        self, prompts: Sequence[str], *, system: str, max_tokens: int, deadline: float
    ) -> list[ModelAnswer]:
        """An answer for each prompt, in order, as far as the first problem."""
        answers: list[ModelAnswer] = []
        for start in range(0, len(prompts), self._max_parallel):
            answers += self._ask_in_parallel(
                prompts[start : start + self._max_parallel], system, max_tokens, deadline
            )
            if any(answer.problem for answer in answers):
                break
        return answers

    def _ask_in_parallel(
        self, prompts: Sequence[str], system: str, max_tokens: int, deadline: float
    ) -> list[ModelAnswer]:
        with self._lock:
            self._hanging_threads = [thread for thread in self._hanging_threads if thread.is_alive()]
            if self._hanging_threads:
                return [ModelAnswer(problem="the model has not come back from an earlier question")]
        boxes: list[queue.Queue[ModelAnswer]] = [queue.Queue(1) for _ in prompts]
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run,  # callbacks and traces of the caller come along
                args=(self._ask_one, prompt, system, max_tokens, box),
                name="langmem-tiers-model",
                daemon=True,  # a call that hangs must not keep the program from ending
            )
            for prompt, box in zip(prompts, boxes, strict=True)
        ]
        for thread in threads:
            thread.start()
        answers = [self._wait_for_answer(box, deadline) for box in boxes]
        with self._lock:
            self._hanging_threads += [
                thread
                for thread, answer in zip(threads, answers, strict=True)
                if answer.problem is not None and thread.is_alive()
            ]
        return answers

    def _wait_for_answer(self, box: queue.Queue[ModelAnswer], deadline: float) -> ModelAnswer:
        try:
            return box.get(timeout=max(0.0, deadline - self._clock.monotonic()))
        except queue.Empty:
            return ModelAnswer(problem=f"no answer within {self._time_limit_seconds:g} s")

    def _ask_one(self, prompt: str, system: str, max_tokens: int, box: queue.Queue[ModelAnswer]) -> None:
        try:
            text: object = self._model.complete(prompt, system=system, max_tokens=max_tokens)
            box.put(_validate_answer(text, max_tokens))
        except BaseException as error:  # noqa: BLE001 - whatever a model raises, memory goes on without it
            _log.debug("the model failed", exc_info=True)
            box.put(ModelAnswer(problem=f"the model raised {type(error).__name__}"))


def _validate_answer(text: object, max_tokens: int) -> ModelAnswer:
    if not isinstance(text, str):
        return ModelAnswer(problem=f"the model answered a {type(text).__name__} in place of a text")
    if len(text) > max_tokens * MAX_CHARACTERS_PER_TOKEN:
        return ModelAnswer(
            problem=f"the model answered {len(text)} characters where {max_tokens} tokens were asked for"
        )
    text = str(text).strip()
    return ModelAnswer(text) if text else ModelAnswer(problem="the model answered nothing")
