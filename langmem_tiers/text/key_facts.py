"""Key facts, which make an entry worth promoting."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyFact:
    """A kind of key fact: lower-case needles for a quick check, and the pattern that confirms it."""

    name: str
    needles: tuple[str, ...]
    pattern: re.Pattern[str]


KEY_FACTS: tuple[KeyFact, ...] = (
    KeyFact("url", ("http",), re.compile(r"https?://\S")),
    KeyFact("error", ("error", "failed", "exception"), re.compile(r"error|failed|exception")),
    KeyFact(
        "selector",
        ("selector", "xpath", "css", "#", "class", "id=", "//"),
        re.compile(
            r"selector|\bxpath\b|\bcss\b|(?<![\w&/#])#[a-z][\w-]+|class(?:name)?=[\"']|\bid=[\"']|(?<![:\w/])//\w+\["
        ),
    ),
    KeyFact(
        "api",
        ("api", "endpoint", "get /", "post /", "put /", "patch /", "delete /"),
        re.compile(r"\bapis?\b|\bendpoints?\b|\b(?:get|post|put|patch|delete) /"),
    ),
    KeyFact(
        "credential",
        ("password", "credential", "key", "secret", "token"),
        re.compile(
            r"passwords?\b|\bcredentials?\b|\bapi[ _-]?keys?\b|\bsecrets?\b|\b(?:access|auth|bearer)[ _-]?tokens?\b"
        ),
    ),
    KeyFact("step", ("step", "phase"), re.compile(r"\b(?:step|phase)\s#?\d")),
)


def find_key_facts(text: str) -> tuple[str, ...]:
    """Return the names of the key facts in the text. A text without any is not a candidate for promotion."""
    lowered = text.lower()
    return tuple(
        fact.name
        for fact in KEY_FACTS
        if any(needle in lowered for needle in fact.needles) and fact.pattern.search(lowered)
    )
