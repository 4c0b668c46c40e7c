"""A chat model for demonstrations: offline, and it knows nothing but its prompt."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult

from langmem_tiers.core.fences import CLOSING, OPENING, without_fences
from langmem_tiers.scoring.terms import terms_of
from langmem_tiers.scoring.tokens import ContentAwareCounter, count_draft
from langmem_tiers.scoring.tokens.lists import FRAME_TOKENS, REPLY_TOKENS
from langmem_tiers_langchain.convert import to_draft

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_core.runnables import Runnable

UNKNOWN = "I don't know."
NOTED = "Noted."
"""What is said to a message that asks nothing."""
_QUESTION_MARKS = "?", "\N{FULLWIDTH QUESTION MARK}"
_LEAST_SHARE = 0.3
"""Of the question's words, by how rare they are, that an answer must hold."""
_END = re.compile(r"(?<=[.!?])\s+|\s+[-|>]\s+")
_FENCE = frozenset((*OPENING.split("\n"), CLOSING))
_DAY = re.compile(r"\d{4}-\d\d-\d\d:")
_LABEL = re.compile(r"^(?:\w+: |- )")


class ExtractiveChat(BaseChatModel):
    """Answers with the sentence of its prompt that shares most words with the newest question.

    Rare words count more than common ones, and of two sentences that share as much the shorter one is told. Where
    none shares enough, it says ``I don't know.``, and to what has no question mark ``Noted.``. It makes nothing up and
    keeps nothing from one call to the next, so its answers show what the prompt held. It takes tools and never
    calls one.
    """

    @property
    def _llm_type(self) -> str:
        return "extractive"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, Any]:  # noqa: ANN401, ARG002 - the framework's signature
        """The same model: it answers in words alone."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the framework's signature
        run_manager: object = None,  # noqa: ARG002 - as above
        **_: object,
    ) -> ChatResult:
        text, counter = quoted_answer(messages), ContentAwareCounter()
        shown = sum(count_draft(counter, to_draft(message)) + FRAME_TOKENS for message in messages)
        prompt, told = shown + REPLY_TOKENS, counter.count(text)
        usage = UsageMetadata(input_tokens=prompt, output_tokens=told, total_tokens=prompt + told)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, usage_metadata=usage))])


def quoted_answer(messages: Sequence[BaseMessage]) -> str:
    """The sentence of a prompt that answers its newest question, or that it is not known."""
    place = next((n for n in reversed(range(len(messages))) if isinstance(messages[n], HumanMessage)), None)
    if place is None:
        return UNKNOWN
    question = without_fences(str(messages[place].text))
    if not any(mark in question for mark in _QUESTION_MARKS):
        return NOTED
    told = dict.fromkeys(one for message in messages for one in _sentences(str(message.text)))
    for own in _sentences(question):  # to say a question again is no answer
        told.pop(own, None)
    return _best(list(told), set(terms_of(question)))


def _best(sentences: Sequence[str], asked: set[str]) -> str:
    held = [set(terms_of(sentence)) for sentence in sentences]
    in_how_many = Counter(term for terms in held for term in terms)
    weights = {term: math.log(1 + len(held) / (1 + in_how_many[term])) for term in sorted(asked)}
    shares = [math.fsum(weights[term] for term in terms & asked) for terms in held]
    best = max(range(len(held)), key=lambda n: (shares[n], -len(held[n]), n), default=None)
    enough = _LEAST_SHARE * math.fsum(weights.values())
    return UNKNOWN if best is None or shares[best] == 0 or shares[best] < enough else sentences[best]


def _sentences(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line in _FENCE or _DAY.fullmatch(line):
            continue
        for part in _END.split(_LABEL.sub("", line)):
            sentence = part.strip()
            if (
                sentence
                and sentence not in (UNKNOWN, NOTED)
                and not sentence.endswith((":", *_QUESTION_MARKS))
            ):
                yield sentence
