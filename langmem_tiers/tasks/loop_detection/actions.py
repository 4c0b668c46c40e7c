"""Reads actions as agents write them: calls, commands in brackets, JSON, shell lines."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langmem_tiers.tasks.models import AgentAction

_MAX_PARSED_CHARACTERS = 10_000
"""Characters up to which a text is read as a call; what is longer is taken as it stands."""
_CALL = re.compile(r"[A-Za-z_][\w.]*\s*\(.*\)\s*;?", re.DOTALL)
_BRACKETS = re.compile(r"([A-Za-z_]\w*)((?:\s*\[[^\[\]]*\])+)")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_COMMAND = re.compile(r"[A-Za-z_./][\w./-]*(?=\s|$)")
_TOOL_KEYS = ("action", "action_type", "tool", "tool_name", "name", "function", "type")
_PARAMETER_KEYS = ("parameters", "arguments", "args", "params", "input", "action_input", "kwargs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a run: what was done, where, and what came of it."""

    tool: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    url: str = ""
    """The address at which it was done; empty if not known."""
    observation: str = ""
    """What was seen with it; empty if not known."""
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
        """A step from an action in any of the forms that agents use. Never raises.

        Args:
            action: ``"click('a51')"``, ``"type [164] [shoes] [1]"``, a JSON object (as text or read), a
                shell command, or an `Action`. Any other text is one action by its words.
            url: The address at which it was done.
            observation: What was seen with it.
            failed: Whether it failed.
        """
        tool, parameters = parse_action(action)
        return cls(tool=tool, parameters=parameters, url=url, observation=observation, failed=failed)


def parse_action(action: object) -> tuple[str, Mapping[str, Any]]:
    """The tool and its parameters; those given by position are named ``"0"``, ``"1"`` and so on."""
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
    named = next((key for key in _TOOL_KEYS if action.get(key)), None)
    if named is None:
        return "unknown", {str(key): value for key, value in action.items()}
    tool = action[named]
    if isinstance(tool, Mapping):
        return _parse_mapping(tool)
    parameters: dict[str, Any] = {}
    for key, value in action.items():
        if key == named:
            continue
        inner = _parse_object(value) if key in _PARAMETER_KEYS and isinstance(value, str) else value
        if key in _PARAMETER_KEYS and isinstance(inner, Mapping):
            parameters |= {str(one): each for one, each in inner.items()}
        else:
            parameters[str(key)] = value
    return str(tool), parameters


def _parse_json(text: str) -> tuple[str, Mapping[str, Any]] | None:
    read = _parse_object(text)
    return None if read is None else _parse_mapping(read)


def _parse_object(text: str) -> Mapping[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, Mapping) else None


def _parse_call(text: str) -> tuple[str, Mapping[str, Any]] | None:
    if _CALL.fullmatch(text) is None:
        return None
    try:
        call = ast.parse(text.rstrip("; "), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(call, ast.Call):
        return None
    parameters = {str(at): _parse_literal(one) for at, one in enumerate(call.args)}
    parameters |= {one.arg or "**": _parse_literal(one.value) for one in call.keywords}
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
    return found[1], {str(at): one for at, one in enumerate(_BRACKET.findall(found[2]))}


def _parse_words(text: str) -> tuple[str, Mapping[str, Any]]:
    words = " ".join(text.split()) if len(text) <= _MAX_PARSED_CHARACTERS else text
    command = _COMMAND.match(words)
    if command is None:
        return "text", {"text": words}
    rest = words[command.end() :].strip()
    return command[0], {"text": rest} if rest else {}
