"""Placeholders in what was said: chat engines make templates of the history and would fill them in.

An invisible character keeps ``{query_str}`` from being one; it is taken out again where such a text comes back.
"""

from __future__ import annotations

import re

NAMES = ("query_str", "context_str", "context_msg", "existing_answer")
"""What the chat engines of LlamaIndex fill in."""
_JOINER = "\N{WORD JOINER}"
_PLACEHOLDER = re.compile(rf"\{{(?={'|'.join(NAMES)})\b", re.ASCII)
_PROTECTED = re.compile(rf"\{{{_JOINER}(?={'|'.join(NAMES)})")


def protected(text: str) -> str:
    """The text with no placeholder in it."""
    return _PLACEHOLDER.sub("{" + _JOINER, text) if "{" in text else text


def as_said(text: str) -> str:
    """The text as it was before it was protected."""
    return _PROTECTED.sub("{", text) if _JOINER in text else text
