"""Parser for actions in the forms that agents use: calls, bracketed commands, JSON and shell lines."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langmem_tiers.tasks.models import AgentAction

_MAX_PARSED_CHARACTERS = 10_000
"""Maximum length of a text that is parsed as a call. A longer text is used unchanged."""
_CALL = re.compile(r"[A-Za-z_][\w.]*\s*\(.*\)\s*;?", re.DOTALL)
_BRACKETS = re.compile(r"([A-Za-z_]\w*)((?:\s*\[[^\[\]]*\])+)")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_COMMAND = re.compile(r"[A-Za-z_./][\w./-]*(?=\s|$)")
# Keys for the tool name and the parameters in the formats of common libraries, in order of preference.
_TOOL_KEYS = ("action", "action_type", "tool", "tool_name", "name", "function", "type")
_PARAMETER_KEYS = ("parameters", "arguments", "args", "params", "input", "action_input", "kwargs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a run: the action, its page and its result."""

    tool: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    url: str = ""
    """Address of the page; empty if unknown."""
    observation: str = ""
    """Observed result; empty if unknown."""
    failed: bool = False

    @classmethod
    def of(
        cls,
        action: str | AgentAction | Mapping[str, Any],
        *,
        url: str = "",
        observation: str = "",
        failed: bool = False,
    ) -> Step:
        """Create a step from an action in any common form. Never raises.

        Args:
            action: ``"click('a51')"``, ``"type [164] [shoes] [1]"``, a JSON object as text or mapping, a shell command,
                or an `AgentAction`. Any other text is split into a command and its words.
            url: Address of the page. Default: unknown.
            observation: Observed result. Default: unknown.
            failed: True if the action failed. Default: False.
        """
        tool, parameters = parse_action(action)
        return cls(tool=tool, parameters=parameters, url=url, observation=observation, failed=failed)


def parse_action(action: object) -> tuple[str, Mapping[str, Any]]:
    """Return the tool and its parameters; positional parameters are named ``"0"``, ``"1"`` and so on."""
    if isinstance(action, AgentAction):
        return action.tool_name, action.parameters
    if isinstance(action, Mapping):
        return _parse_mapping(action)
    if not isinstance(action, str):
        return "unknown", {"value": action}
    text = action.strip().strip("`").strip()
    if len(text) > _MAX_PARSED_CHARACTERS:
        return _parse_words(text)
    return _parse_json(text) or _parse_call(text) or _parse_brackets(text) or _parse_words(text)


def _parse_mapping(action: Mapping[Any, Any]) -> tuple[str, Mapping[str, Any]]:
    tool_key = next((key for key in _TOOL_KEYS if action.get(key)), None)
    if tool_key is None:
        return "unknown", {str(key): value for key, value in action.items()}
    tool = action[tool_key]
    # {"type": "function", "function": {"name": ..., "arguments": ...}} and similar nested forms.
    if isinstance(tool, Mapping):
        return _parse_mapping(tool)
    parameters: dict[str, Any] = {}
    for key, value in action.items():
        if key == tool_key:
            continue
        # Arguments may be a JSON object in a string.
        inner = _parse_object(value) if key in _PARAMETER_KEYS and isinstance(value, str) else value
        if key in _PARAMETER_KEYS and isinstance(inner, Mapping):
            parameters |= {str(name): item for name, item in inner.items()}
        else:
            parameters[str(key)] = value
    return str(tool), parameters


def _parse_json(text: str) -> tuple[str, Mapping[str, Any]] | None:
    parsed = _parse_object(text)
    return None if parsed is None else _parse_mapping(parsed)


def _parse_object(text: str) -> Mapping[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, Mapping) else None


def _parse_call(text: str) -> tuple[str, Mapping[str, Any]] | None:
    if _CALL.fullmatch(text) is None:
        return None
    # The Python parser handles quotes, nested values and keywords. It only parses; nothing is executed.
    try:
        call = ast.parse(text.rstrip("; "), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(call, ast.Call):
        return None
    parameters = {str(index): _parse_literal(node) for index, node in enumerate(call.args)}
    parameters |= {keyword.arg or "**": _parse_literal(keyword.value) for keyword in call.keywords}
    return ast.unparse(call.func), parameters


def _parse_literal(node: ast.expr) -> Any:  # noqa: ANN401 - any literal
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return ast.unparse(node)


def _parse_brackets(text: str) -> tuple[str, Mapping[str, Any]] | None:
    found = _BRACKETS.fullmatch(text)
    if found is None:
        return None
    return found[1], {str(index): value for index, value in enumerate(_BRACKET.findall(found[2]))}


def _parse_words(text: str) -> tuple[str, Mapping[str, Any]]:
    words = " ".join(text.split()) if len(text) <= _MAX_PARSED_CHARACTERS else text
    command = _COMMAND.match(words)
    if command is None:
        return "text", {"text": words}
    rest = words[command.end() :].strip()
    return command[0], {"text": rest} if rest else {}
