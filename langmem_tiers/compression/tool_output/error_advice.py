"""Parsing of errors in tool results: type, message and advice for the next step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from langmem_tiers.compression.tool_output.detection import lowercase_keys
from langmem_tiers.compression.tool_output.models import ErrorDetails
from langmem_tiers.text.sentences import shorten_text

MAX_ERROR_MESSAGE_CHARACTERS = 600
"""Maximum length of an error message, and of the advice."""
_ERROR_LINE = re.compile(
    r"^\W{0,3}((?:[A-Za-z_][\w.]{0,80})?(?:Error|Exception|Warning|Interrupt|Timeout))\b\s?[:(\[]\s?(.*)",
    re.MULTILINE,
)
_BARE_ERROR = re.compile(r"^[ \t]*([A-Za-z_][\w.]{0,80}(?:Error|Exception))[ \t]*$", re.MULTILINE)
_STATUS = re.compile(
    r"(?<![\w.])(?:HTTP(?:/\d\S{0,5})?\s(?:error\s)?|status(?:[ _]code)?\W{1,4})?([45]\d\d)\b", re.IGNORECASE
)
_PLAIN_ERROR = re.compile(r"^\W{0,3}(?:error|fatal|failed)\W{1,3}(.+)", re.IGNORECASE | re.MULTILINE)
_HINT = re.compile(
    r"(?:^|[.;!?\n]\s{0,4})"
    r"((?:hint|suggestion|try|please|did you mean|consider|use|make sure)\b[^\n]{3,300})",
    re.IGNORECASE,
)
# The first matching row determines the advice, so specific patterns precede general ones.
_ADVICE = (
    (r"429|rate.?limit|too many requests|quota", "wait before the next request, then try again"),
    (r"401|unauthori[sz]ed|not logged in|authenticat", "log in or renew the credentials, then try again"),
    (
        r"403|forbidden|permission|access denied|captcha",
        "check the permissions, or use another source",
    ),
    (r"stale|detached", "read the page again: the element was replaced"),
    (
        r"(?:element|selector|node|locator|xpath).{0,80}(?:not |no |un)|no such element|nosuchelement",
        "read the page state again and choose another selector",
    ),
    (r"not visible|not interactable|intercept|obscured", "scroll to the element or close what covers it"),
    (r"404|not found|no such file", "check the address or the name, then look for it another way"),
    (r"time.?out|timed out|deadline", "wait for the page to load, or try again with a longer time limit"),
    (
        r"dns|resolve|refused|unreachable|reset|network|connection|net::",
        "check the address and the connection",
    ),
    (
        r"\b50\d\b|internal server|unavailable|bad gateway",
        "the server failed: try again later or try another way",
    ),
    (r"json|parse|decode|syntax|unexpected token", "check the format of what was sent or read"),
    (
        r"key ?error|attribute|type ?error|value ?error|invalid|argument|parameter",
        "check the parameters of the call",
    ),
)
_ADVICE_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in _ADVICE)
_DEFAULT_ADVICE = "change something before trying again: the same call will fail the same way"
_MESSAGE_KEYS = (
    "message",
    "msg",
    "detail",
    "details",
    "description",
    "reason",
    "error_message",
    "errormessage",
    "text",
)
_TYPE_KEYS = ("type", "error_type", "errortype", "name", "exception", "code", "status", "status_code")
_HINT_KEYS = ("recovery", "recovery_suggestion", "suggestion", "suggestions", "hint", "recovery_suggestions")
_SAMPLE_CHARACTERS = 20_000


def read_error(data: object, text: str) -> ErrorDetails:
    """Read the error in a tool result.

    The advice is taken from the result if it contains a hint, otherwise from a table of common errors.

    Args:
        data: The result, if it is a mapping.
        text: The result as text.
    """
    found = _parse_mapping(data) if isinstance(data, Mapping) else _parse_text(text)
    kind, message = found.get("type", "") or "Error", found.get("message", "")
    recovery = found.get("recovery", "") or _find_hint(text) or _find_advice(f"{kind} {message}")
    return ErrorDetails(
        type=shorten_text(kind, 100),
        message=shorten_text(message or text, MAX_ERROR_MESSAGE_CHARACTERS),
        recovery=shorten_text(recovery, MAX_ERROR_MESSAGE_CHARACTERS),
    )


def _parse_mapping(data: Mapping[Any, Any]) -> dict[str, str]:
    keys = lowercase_keys(data)
    inner = next((keys[key] for key in ("error", "exception") if keys.get(key)), None)
    if isinstance(inner, Mapping):
        found = _parse_mapping(inner)
    else:
        message = (
            inner
            if isinstance(inner, str)
            else _get_first_text(keys, _MESSAGE_KEYS) or _get_first_text(keys, ("traceback",))
        )
        found = _parse_text(message)
        if kind := _get_first_text(keys, _TYPE_KEYS[:-3] if found.get("type") else _TYPE_KEYS):
            found["type"] = kind
    if recovery := _get_first_text(keys, _HINT_KEYS):
        found["recovery"] = recovery
    return found


def _get_first_text(keys: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        value = keys.get(name)
        if isinstance(value, list | tuple) and value and isinstance(value[0], str):
            return "; ".join(item for item in value if isinstance(item, str))
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)
    return ""


def _parse_text(text: str) -> dict[str, str]:
    # Of a chain of errors, the last one is the one that was raised, so the end of a long text is read, too.
    sample = (
        text
        if len(text) <= 2 * _SAMPLE_CHARACTERS
        else f"{text[:_SAMPLE_CHARACTERS]}\n{text[-_SAMPLE_CHARACTERS:]}"
    )
    lines = _ERROR_LINE.findall(sample)
    if lines:
        return {"type": lines[-1][0].rpartition(".")[2], "message": lines[-1][1].rstrip(")]") or lines[-1][0]}
    if bare := _BARE_ERROR.findall(sample):
        return {"type": bare[-1].rpartition(".")[2], "message": bare[-1]}
    plain = _PLAIN_ERROR.search(sample)
    message = plain[1] if plain else sample.strip().partition("\n")[0]
    status = _STATUS.search(sample[:500])
    return {"type": f"HTTP {status[1]}" if status else "", "message": message}


def _find_hint(text: str) -> str:
    found = _HINT.search(text[:_SAMPLE_CHARACTERS]) or _HINT.search(text[-_SAMPLE_CHARACTERS:])
    return found[1].strip() if found else ""


def _find_advice(text: str) -> str:
    return next(
        (advice for pattern, advice in _ADVICE_PATTERNS if pattern.search(text[:2000])), _DEFAULT_ADVICE
    )
