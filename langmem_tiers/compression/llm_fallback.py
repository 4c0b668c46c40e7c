"""Calls to a language model that may raise, hang, or return an empty or far too long answer."""

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
"""Maximum accepted length of an answer, in characters per requested token."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """Answer of a model, or the problem if there is none."""

    text: str = ""
    problem: str | None = None


class BoundedModel:
    """Wrapper of a language model with a time limit and a limit on the length of answers.

    Python cannot stop a call that hangs. Its thread is abandoned, and further requests are rejected until it returns,
    so that threads do not accumulate.

    Args:
        model: The model.
        time_limit_seconds: Time limit for all answers that one summary needs.
        parallel: Maximum number of concurrent requests.
    """

    def __init__(self, model: LanguageModel, *, time_limit_seconds: float, parallel: int = 4) -> None:
        self._model = model
        self._time_limit_seconds = time_limit_seconds
        self._max_parallel = parallel
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._hanging_threads: list[threading.Thread] = []

    def compute_deadline(self) -> float:
        """Return the deadline, on the monotonic clock, of a summary that starts now."""
        return self._clock.monotonic() + self._time_limit_seconds

    def ask(
        self, prompts: Sequence[str], *, system: str, max_tokens: int, deadline: float
    ) -> list[ModelAnswer]:
        """Return the answers in the order of the prompts. Stop after the first batch with a problem."""
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
                return [ModelAnswer(problem="the model is still busy with an earlier request")]
        # One queue per prompt: an answer that arrives after the deadline stays in a queue that nobody reads.
        boxes: list[queue.Queue[ModelAnswer]] = [queue.Queue(1) for _ in prompts]
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run,  # keeps callbacks and traces of the caller
                args=(self._ask_one, prompt, system, max_tokens, box),
                name="langmem-tiers-model",
                daemon=True,  # a call that hangs must not prevent the program from exiting
            )
            for prompt, box in zip(prompts, boxes, strict=True)
        ]
        for thread in threads:
            thread.start()
        answers = [self._wait_for_answer(box, deadline) for box in boxes]
        with self._lock:
            # Only threads without an answer: one that has put its answer may be alive for another moment.
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
        except BaseException as error:  # noqa: BLE001 - any failure of a model is reported as a problem
            _log.debug("the model failed", exc_info=True)
            box.put(ModelAnswer(problem=f"the model raised {type(error).__name__}"))


def _validate_answer(text: object, max_tokens: int) -> ModelAnswer:
    if not isinstance(text, str):
        return ModelAnswer(
            problem=f"the model returned a value of type {type(text).__name__} instead of a text"
        )
    if len(text) > max_tokens * MAX_CHARACTERS_PER_TOKEN:
        return ModelAnswer(
            problem=f"the model returned {len(text)} characters, but only {max_tokens} tokens were requested"
        )
    text = str(text).strip()  # a subclass of str becomes a plain one
    return ModelAnswer(text) if text else ModelAnswer(problem="the model returned an empty answer")
