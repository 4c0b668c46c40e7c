"""Rule-based detection of key moments: decisions, solutions, breakthroughs, issues, completed tasks and pivots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import FENCE_OPENING, strip_fences
from langmem_tiers.episodes.models import EpisodeDraft, EpisodeKind
from langmem_tiers.episodes.patterns import (
    MOMENT_PATTERNS,
    MomentPattern,
    OutcomeSide,
    build_any_of_pattern,
)
from langmem_tiers.text.sentences import find_sentence_spans, shorten_text
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langmem_tiers.long_term.records import NumberedMessage


BASE_SIGNIFICANCE = {
    EpisodeKind.PIVOT: 0.75,
    EpisodeKind.BREAKTHROUGH: 0.75,
    EpisodeKind.DECISION_MADE: 0.7,
    EpisodeKind.PROBLEM_SOLVED: 0.6,
    EpisodeKind.TASK_COMPLETED: 0.6,
    EpisodeKind.ISSUE_IDENTIFIED: 0.5,
}
"""Significance of each kind before adjustments."""
BASE_VALENCE = {
    EpisodeKind.PIVOT: -0.1,
    EpisodeKind.BREAKTHROUGH: 0.7,
    EpisodeKind.DECISION_MADE: 0.2,
    EpisodeKind.PROBLEM_SOLVED: 0.5,
    EpisodeKind.TASK_COMPLETED: 0.5,
    EpisodeKind.ISSUE_IDENTIFIED: -0.4,
}
"""Valence of each kind before adjustments, from -1 to 1."""

_POSITIVE_WORD = re.compile(
    r"\b(?:great|finally|excellent|amazing|awesome|fantastic|wonderful|brilliant|perfect(?:ly)?|love|happy|proud"
    r"|excited|relieved|huge|hooray|yay|congratulations)\b|🎉|🚀",
    re.IGNORECASE,
)
_NEGATIVE_WORD = re.compile(
    r"\b(?:terribl[ey]|critical(?:ly)?|block(?:ed|er|ing)|severe(?:ly)?|urgent(?:ly)?|awful|horrible|disaster"
    r"|catastroph\w{1,6}|serious(?:ly)?|nightmare|frustrat\w{1,5}|angry|worst|broken|emergency|data loss|sadly"
    r"|unfortunately)\b",
    re.IGNORECASE,
)
_GIVES_REASON = re.compile(r"\b(?:because|since|due to|so that|the reason|in order to)\b", re.IGNORECASE)
_NUMBER_OR_NAME = re.compile(r"\d|(?<=[a-z,;] )[A-Z][A-Za-z]{2,}|[a-z][A-Z]|[A-Z]{2,}|\w_\w")
_HEDGE = re.compile(rf"\b{build_any_of_pattern('hedges')}\b", re.IGNORECASE)
_SUGGESTION = re.compile(
    r"\b(?:i(?:'d| would)? (?:recommend|suggest|advise)|you (?:could|should|can|might|may)"
    r"|my (?:recommendation|suggestion)|it(?:'s| is) (?:best|better|a good idea) to|consider|one option"
    r"|i propose|how about|would you like)\b",
    re.IGNORECASE,
)
_INTENSITY_WEIGHT = 0.1


def score_significance(kind: EpisodeKind, text: str, *, is_assistant: bool = False) -> float:
    """Compute the significance of a moment, from 0 to 1.

    Args:
        kind: Kind of the moment, which determines the base value.
        text: The sentences about the moment.
        is_assistant: True if an assistant wrote the text: suggestions by an assistant are not decisions.
    """
    # Strong words, a reason, and concrete details raise the score; hedges and suggestions lower it.
    score = BASE_SIGNIFICANCE[kind]
    score += _INTENSITY_WEIGHT * min(2, _count_strong_words(text))
    score += 0.05 * (_GIVES_REASON.search(text) is not None)
    score += 0.05 * (_NUMBER_OR_NAME.search(text) is not None)
    score -= 0.15 * (_HEDGE.search(text) is not None)
    score -= 0.2 * (is_assistant and is_suggestion(text))
    return round(min(1.0, max(0.0, score)), 2)


def score_valence(kind: EpisodeKind, text: str) -> float:
    """Compute the valence of a moment, from -1 to 1. Strong words intensify it."""
    value = BASE_VALENCE[kind]
    if abs(value) > 0.2:
        # Any strong word amplifies the sign of the kind: "finally fixed the terrible crash" is very good news.
        value += (1 if value > 0 else -1) * 2 * _INTENSITY_WEIGHT * min(2, _count_strong_words(text))
    else:  # the kind is neutral: the words determine the sign
        value += (
            2
            * _INTENSITY_WEIGHT
            * (
                min(2, len(_find_words(_POSITIVE_WORD, text)))
                - min(2, len(_find_words(_NEGATIVE_WORD, text)))
            )
        )
    return round(min(1.0, max(-1.0, value)), 2)


def is_suggestion(text: str) -> bool:
    """Return True if the text contains a proposal."""
    return _SUGGESTION.search(text) is not None


def _count_strong_words(text: str) -> int:
    return len(_find_words(_POSITIVE_WORD, text) | _find_words(_NEGATIVE_WORD, text))


def _find_words(pattern: re.Pattern[str], text: str) -> set[str]:
    return {word.lower() for word in pattern.findall(text)}


MAX_DETECTION_CHARACTERS = 4000
"""Maximum number of characters read from a message."""
MAX_OUTCOME_CHARACTERS = 200
MIN_LECTURE_CHARACTERS = 600
"""Minimum length of an assistant message that counts as an explanation unless it is in the first person."""

_MAX_FENCED_CHARACTERS = 16 * MAX_DETECTION_CHARACTERS  # memory injected before the text may be long
_MAX_MATCHES_PER_ROW = 8
_TIE_ORDER = (
    EpisodeKind.PIVOT,
    EpisodeKind.BREAKTHROUGH,
    EpisodeKind.DECISION_MADE,
    EpisodeKind.PROBLEM_SOLVED,
    EpisodeKind.TASK_COMPLETED,
    EpisodeKind.ISSUE_IDENTIFIED,
)
_CHOICE_KINDS = frozenset({EpisodeKind.DECISION_MADE, EpisodeKind.PIVOT})
_SUCCESS_KINDS = frozenset({EpisodeKind.TASK_COMPLETED, EpisodeKind.PROBLEM_SOLVED})

_CODE_BLOCK = re.compile(r"(?:```|~~~).*?(?:```|~~~|\Z)", re.DOTALL)
_QUOTED_LINE = re.compile(
    r"^[ \t]{0,8}(?:>|\$ |\|)[^\n]*|^(?:\t| {4})(?![ \t]{0,20}[-*+\d])[^\n]*", re.MULTILINE
)
_QUOTED_TEXT = re.compile(r"`[^`\n]{1,300}`|\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|https?://\S{1,500}")
_BULLET = re.compile(r"(?:[-*+•#_]{1,6}|\d{1,3}[.)](?=\s)|\[[xX✓]\]|[✅✔🎉]\ufe0f?|\s)+")
_QUESTION_END = re.compile("[?\uff1f][\"'’”)\\]*_!.]{0,8}$")
_QUESTION_START = re.compile(
    r"(?:(?:is|are|was|were|does|do|did|has|have|had|can|could|should|would|will|shall|may)"
    r" (?:we|you|i|it|he|she|they|this|that|these|those|there|the|anyone|anybody|someone|our|your|my)\b"
    r"|(?:what(?! a)|why|how|which|who|where|if|unless|imagine|todo|whether|in case)\b|suppos|assum|to \w|\[ \])",
    re.IGNORECASE,
)
_OTHER_TIME = re.compile(
    r"\b(?:tomorrow|next (?:week|month|quarter|year|sprint)|in (?:19|20)\d\d|years? ago)\b", re.IGNORECASE
)
_CLAUSE_END = re.compile(
    "[,;:()—\u2013]|\\s-\\s|\\b(?:but|so|because|although|though|however)\\b", re.IGNORECASE
)
_NO_NEGATION = re.compile(
    r"\b(?:(?:can't|cannot) believe|couldn't be happier|not only|no (?:wonder|doubt))\b", re.IGNORECASE
)
_FIRST_PERSON = re.compile(r"\b(?:i|we|our|my)\b", re.IGNORECASE)
_THIRD_PERSON = re.compile(r"\b(?:he|she|they|his|her|their)\b", re.IGNORECASE)
_OUTCOME_END = re.compile(
    "[;:!?—\u2013](?=\\s|$)|\\s-\\s|\\.(?=\\s|$)|, (?:as|but|so|and|not|which)\\b"
    r"|,? \b(?:because|since|so that|as it|rather than|instead of|over the|due to|and not)\b",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"(?:because|since|the reason|that way|this way|so that|it was|the cause)\b", re.IGNORECASE
)
_MEANS_PHRASE = re.compile(r"\bby (?=\w{2,30}ing\b)|\b(?:thanks to|with a|after) ", re.IGNORECASE)
_GERUND = re.compile(r"\w{2,30}ing\b")
_TOOL_ERROR = re.compile(
    r"(?:[\w.]{0,80}(?:Error|Exception)\b(?! handl)|error\b[\s:\[(]|fatal\b|panic:|traceback \(|npm err!|failed\b"
    r"|\{\s{0,8}[\"']error[\"']\s?:\s?+(?![\"']{2}|null|none|false)|[\w.-]{1,40}: (?:command not found|error\b))"
    r"|.{0,200}\b(?:exit(?:ed with)? (?:code|status) [1-9]|[1-9]\d{0,5} (?:failed|errors?)\b)",
    re.IGNORECASE,
)
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class MomentMatch:
    """A moment found in a message."""

    kind: EpisodeKind
    sentence: str
    """Sentence with the strongest match."""
    sentences: str
    """All sentences that match the kind, and reasons given after them."""
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    plain: str
    """The text with quotations masked. It has the same length, so positions apply to both."""


@dataclass(frozen=True, slots=True)
class _Hit:
    sentence_index: int
    row: MomentPattern
    start: int
    end: int

    def rank(self) -> tuple[float, int, int]:
        # Ascending: strongest row first, then by kind, then in the order of the text.
        return -self.row.strength, _TIE_ORDER.index(self.row.kind), self.sentence_index


def find_moment(message: Message, patterns: Sequence[MomentPattern]) -> MomentMatch | None:
    """Return the strongest moment in a message, or None."""
    if message.role is Role.SYSTEM:
        return None
    text = read_spoken_text(message)
    if message.role is Role.TOOL:
        return _find_tool_error(text)
    sentences = _split_sentences(text)
    hits = [
        hit
        for index, sentence in enumerate(sentences)
        for hit in _find_hits(sentence, index, patterns)
        if message.role is not Role.ASSISTANT or _is_own_work(sentence.plain, hit, len(text))
    ]
    if not hits:
        return None
    best = min(hits, key=_Hit.rank)
    indexes = {hit.sentence_index for hit in hits if hit.row.kind is best.row.kind}
    # A sentence that starts with "because" or the like belongs to the one before it.
    indexes |= {index + 1 for index in indexes if _is_reason(sentences[index + 1 : index + 2])}
    return MomentMatch(
        best.row.kind,
        sentences[best.sentence_index].text,
        " ".join(sentences[index].text for index in sorted(indexes)),
        _extract_outcome(sentences[best.sentence_index], best),
    )


def read_spoken_text(message: Message) -> str:
    """Return the beginning of a message without injected memory."""
    text = strip_fences(message.content[:_MAX_FENCED_CHARACTERS])
    if len(message.content) > _MAX_FENCED_CHARACTERS:
        # The cut may have removed the end of a fence, so `strip_fences` did not recognize it.
        text = text.partition(FENCE_OPENING)[0]
    return text[:MAX_DETECTION_CHARACTERS]


def ends_with_question(text: str) -> bool:
    """Return True if the text ends with a question mark."""
    return _QUESTION_END.search(text.rstrip()) is not None


def _find_tool_error(text: str) -> MomentMatch | None:
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    if not lines:
        return None
    # Tools report errors in the first or the last line; the last line of a traceback names the exception.
    ends = (lines[-1], lines[0]) if _TRACEBACK in text else (lines[0], lines[-1])
    error = next((line for line in ends if _TOOL_ERROR.match(line)), None)
    return None if error is None else MomentMatch(EpisodeKind.ISSUE_IDENTIFIED, error, error)


def _split_sentences(text: str) -> list[_Sentence]:
    # Code and quotations are the words of others. Each is replaced by as many line breaks (which end sentences) or
    # marks, so that positions in `plain` are also positions in `text`.
    plain = text.replace("’", "'")
    plain = _CODE_BLOCK.sub(lambda found: "\n" * len(found[0]), plain)
    plain = _QUOTED_LINE.sub(lambda found: "\n" * len(found[0]), plain)
    plain = _QUOTED_TEXT.sub(lambda found: "¤" * len(found[0]), plain)
    sentences = []
    for start, end in find_sentence_spans(plain):
        bullet = _BULLET.match(plain, start, end)
        begin = start if bullet is None else bullet.end()
        if begin < end:
            sentences.append(_Sentence(text[begin:end], plain[begin:end]))
    return sentences


def _find_hits(sentence: _Sentence, index: int, patterns: Sequence[MomentPattern]) -> Iterator[_Hit]:
    plain = sentence.plain
    if _QUESTION_END.search(plain) or _QUESTION_START.match(plain):
        return
    for row in patterns:
        # The first match that is not negated counts. The limit keeps the time linear: the check of a match looks
        # at everything before it.
        for match in islice(row.pattern.finditer(plain), _MAX_MATCHES_PER_ROW):
            if not _is_negated(plain, match.start(), row):
                yield _Hit(index, row, *match.span())
                break


def _is_negated(plain: str, start: int, row: MomentPattern) -> bool:
    if row.unless is None:
        return False
    # Only a negation in the same clause counts: "it was not the cache, we fixed the index".
    clause_start = 0
    for clause_end in _CLAUSE_END.finditer(plain, 0, start):
        clause_start = clause_end.end()
    if row.unless.search(_NO_NEGATION.sub("", plain[clause_start:start])):
        return True
    # A success dated to another time, "done by tomorrow", has not happened now.
    return row.kind in _SUCCESS_KINDS and _OTHER_TIME.search(plain) is not None


def _is_own_work(plain: str, hit: _Hit, length: int) -> bool:
    # True if an assistant reports on its own work. Its general knowledge ("Rome decided to ...") is full of decisions
    # and errors of others.
    is_ours = _FIRST_PERSON.search(plain, 0, hit.end) is not None
    if hit.row.kind in _CHOICE_KINDS:
        is_report = is_ours or (hit.start == 0 and not _THIRD_PERSON.match(plain))
        return is_report and not is_suggestion(plain) and "let's" not in plain.lower()
    if length > MIN_LECTURE_CHARACTERS:
        # In a long answer, a sentence without "I" or "we" counts only near the beginning.
        return is_ours or (hit.start == 0 and hit.sentence_index < 3)
    return is_ours or not _THIRD_PERSON.search(plain)


def _is_reason(following: Sequence[_Sentence]) -> bool:
    return any(_REASON.match(sentence.plain) for sentence in following)


def _extract_outcome(sentence: _Sentence, hit: _Hit) -> str | None:
    kind, text = hit.row.kind, sentence.text
    if kind not in _SUCCESS_KINDS and kind is not EpisodeKind.DECISION_MADE:
        return None
    outcome = ""
    # MEANS: "solved by waiting" has the outcome after "by", "waiting solved it" before the verb.
    side, start = hit.row.outcome, hit.end
    if side is OutcomeSide.MEANS and (means := _MEANS_PHRASE.search(sentence.plain, start)):
        side, start = OutcomeSide.AFTER, means.end()
    if side is OutcomeSide.AFTER:
        end = _OUTCOME_END.search(sentence.plain, start)
        outcome = text[start : end.start() if end else len(text)]
    elif side is OutcomeSide.BEFORE or (side is OutcomeSide.MEANS and _GERUND.match(sentence.plain)):
        outcome = text[: hit.start]
    outcome = outcome.strip(" \t\n,;:!-—*_").rstrip(".").removesuffix(" by")
    # Without a usable part, the whole sentence is the outcome.
    return shorten_text(outcome if len(outcome) > 3 else text, MAX_OUTCOME_CHARACTERS)


MAX_TITLE_CHARACTERS = 60
MAX_EPISODE_SUMMARY_CHARACTERS = 400
MAX_CONTEXT_CHARACTERS = 160
"""Maximum number of characters of each message in the context."""
MAX_LOOK_BACK_TURNS = 10
"""Maximum distance, in turns, between a problem and its solution."""


def find_moments(
    turns: Sequence[NumberedMessage], *, after: int = 0, patterns: Sequence[MomentPattern] = MOMENT_PATTERNS
) -> tuple[EpisodeDraft, ...]:
    """Find the key moments of a conversation in order, at most one per message.

    Args:
        turns: Consecutive messages of one session, oldest first.
        after: Return only moments of messages after this number. Include ten earlier messages as context.
        patterns: Patterns to match. Example with more rows: ``(*MOMENT_PATTERNS, my_pattern)``.
    """
    # Earlier messages are searched too: a solution is combined with the issue that it solves.
    moments = {
        index: moment
        for index, turn in enumerate(turns)
        if turn.number > after - MAX_LOOK_BACK_TURNS
        and (moment := find_moment(turn.message, patterns)) is not None
    }
    return tuple(_build_draft(turns, index, moments) for index in moments if turns[index].number > after)


def get_speaker(message: Message) -> str:
    """Return the name of the author of a message, or the role of an author without a name."""
    return message.name or message.role.value


def _build_draft(
    turns: Sequence[NumberedMessage], index: int, moments: dict[int, MomentMatch]
) -> EpisodeDraft:
    moment, turn = moments[index], turns[index]
    first = _find_start(turns, index, moments)
    return EpisodeDraft(
        kind=moment.kind,
        title=shorten_text(moment.sentence, MAX_TITLE_CHARACTERS),
        summary=shorten_text(moment.sentences, MAX_EPISODE_SUMMARY_CHARACTERS),
        context=_build_context(turns, index),
        participants=tuple(dict.fromkeys(get_speaker(member.message) for member in turns[first : index + 1])),
        outcome=moment.outcome,
        valence=score_valence(moment.kind, moment.sentences),
        significance=score_significance(
            moment.kind, moment.sentences, is_assistant=turn.message.role is Role.ASSISTANT
        ),
        first_turn=turns[first].number,
        last_turn=turn.number,
    )


def _find_start(turns: Sequence[NumberedMessage], index: int, moments: dict[int, MomentMatch]) -> int:
    # An episode starts with the issue that it solves, or with the question that it answers.
    if moments[index].kind is EpisodeKind.PROBLEM_SOLVED:
        issue = _find_issue(turns, index, moments)
        if issue is not None:
            return issue
    previous = index - 1
    # The previous message may be the end of another episode, and a tool result does not answer a question.
    if previous < 0 or previous in moments or turns[index].message.role is Role.TOOL:
        return index
    message = turns[previous].message
    is_question = message.role in {Role.USER, Role.ASSISTANT} and ends_with_question(
        read_spoken_text(message)
    )
    return previous if is_question else index


def _find_issue(turns: Sequence[NumberedMessage], index: int, moments: dict[int, MomentMatch]) -> int | None:
    # The nearest earlier issue that shares a word with the solution.
    words = set(extract_terms(read_spoken_text(turns[index].message)))
    for earlier in range(index - 1, -1, -1):
        if turns[index].number - turns[earlier].number > MAX_LOOK_BACK_TURNS:
            break
        issue = moments.get(earlier)
        if issue is None or issue.kind is not EpisodeKind.ISSUE_IDENTIFIED:
            continue
        if words & set(extract_terms(read_spoken_text(turns[earlier].message))):
            return earlier
    return None


def _build_context(turns: Sequence[NumberedMessage], index: int) -> str:
    lines = []
    for turn in turns[max(0, index - 2) : index]:
        text = (
            ""
            if turn.message.role is Role.SYSTEM
            else shorten_text(read_spoken_text(turn.message), MAX_CONTEXT_CHARACTERS)
        )
        if text:
            lines.append(f"{get_speaker(turn.message)}: {text}")
    return "\n".join(lines)
