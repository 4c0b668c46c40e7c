"""Conversion of actions to steps of a pattern: fixed parameters, and slots for values that are typed in.

Values that look like secrets are removed from shapes, steps and names before a sequence leaves this module.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers.common.json_values import to_plain_value
from langmem_tiers.text.prompt_injection import SECRET_PATTERNS
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langmem_tiers.tasks.models import Cycle

# A longer value is data, not part of a pattern, and is treated like a secret.
_MAX_LITERAL_CHARACTERS = 2_000
# Limit for a thought, and for the parameters next to a field, when they are searched for hints.
_MAX_CONTEXT_CHARACTERS = 500
# Parameters whose value is typed in.
_VALUE_NAMES = frozenset(load_words(__name__, "tool_calls", "typed values"))
# Value parameters that do not name the field; its name comes from another parameter.
_PLAIN_NAMES = frozenset("text value values content input keys string message body".split())
# Parameters that contain the fields of a form.
_FORM_NAMES = frozenset("fields form form_data data inputs values json payload body".split())
_COMMAND_NAMES = frozenset(load_words(__name__, "tool_calls", "command parameters"))
# Parameters within a form that identify a field and are not typed in.
_STRUCTURE_NAMES = frozenset(load_words(__name__, "tool_calls", "field parameters"))
_FIELD_NAMES = ("field", "name", "label", "selector", "xpath", "placeholder", "element", "target", "id")
_PASSWORD = re.compile(
    r"pass ?[-_]?(?:words?|wd|phrase|code)|pwd|passwort|contraseña|mot de passe|密码|パスワード|пароль",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    r"secret|token|credential|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|authori[sz]ation|\bauth|cookie|session"
    r"|\bpin\b|\bpass\b|\botp\b|\b[2m]fa\b|one[-_ ]?time|verification|security[-_ ]?(?:code|answer|number)"
    r"|\bcv[vc]2?\b|\bssn\b|social security|card[-_ ]?(?:number|no)|cc[-_ ]?(?:number|num)|credit ?card|\biban\b"
    r"|signature|\bsig\b",
    re.IGNORECASE,
)
_SECRET_IN_URL = re.compile(
    r"[?&;#][^=&#?;\s]{0,40}?(?:token|key|secret|pass|pwd|auth|code|sig|session|sid|credential|otp|jwt)"
    r"[^=&#?;\s]{0,40}=[^&#\s]",
    re.IGNORECASE,
)
_SECRET_IN_COMMAND = re.compile(
    # In the order of the alternatives: DB_PASSWORD=x and "Authorization: x"; --password x; curl -u me:x;
    # mysql -px; sshpass -p x and https://me:x@host.
    r"(?:password|passwd|passphrase|pwd|secret|token|(?:api|access)[-_]?key|credentials?|authorization)[\"']? ?[=:] ?\S"
    r"|--(?:pass|pwd|secret|token|api-?key|credential)[\w-]{0,20}[ =]\S"
    r"|(?:^|\s)(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,80}:\S"
    r"|\bmysql\w{0,20}\s.{0,200}?-p\S|\bsshpass\b|://[^\s/@:]{0,80}:[^\s/@]{1,80}@",
    re.IGNORECASE,
)
# Email addresses and card numbers.
_PERSONAL = re.compile(r"[^\s@]@[^\s@]+\.[^\s@]|(?:\d[ -]?){12}")
_TOKEN = re.compile(r"[A-Za-z0-9+/=_.~-]{20,}")
_DIGIT, _LETTER = re.compile(r"\d"), re.compile("[A-Za-z]")
_CHARACTER_CLASSES = tuple(map(re.compile, ("[a-z]", "[A-Z]", r"\d", r"[^\w\s]")))
_SEARCH = re.compile(r"search|query|\bq\b", re.IGNORECASE)
# The value of an attribute in a CSS or XPath selector, for example ``email`` in ``input[name='email']``.
_ATTRIBUTE = re.compile(
    r"(?:name|id|placeholder|aria-label|data-testid|type)\s*[*^$~|]?=\s*[\"']?([^\"'\]]+)"
)
_CSS_NAME = re.compile(r"[#.]([A-Za-z_][\w-]*)")
_CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NON_NAME_CHARACTERS = re.compile(r"[^a-z0-9]+")
_PASSIVE_TOOL = re.compile(
    r"scroll|wait|sleep|pause|(?:take_)?screenshot|get_|extract|read|observe|look", re.IGNORECASE
)


ParameterPath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes that lead to a value within the parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A parameter of a step whose value may differ each time."""

    path: ParameterPath
    name: str
    value: str | int | float | None
    """The typed value, or None if it was redacted."""
    is_secret: bool
    is_password: bool = False
    is_search: bool = False


@dataclass(frozen=True, slots=True)
class TemplateStep:
    """An action as a step of a pattern. Steps with equal shapes differ only in the values of their slots."""

    tool: str
    parameters: dict[str, Any]
    shape: str
    slots: tuple[Slot, ...]
    timestamp: float
    cycle_id: str = ""
    """Id of the cycle in which the action was performed."""

    @property
    def is_passive(self) -> bool:
        """True if the step only waits or reads, or consists only of a command with a secret."""
        is_blank = len(self.slots) == 1 == len(self.parameters) and self.slots[0].name in _COMMAND_NAMES
        return is_blank or _PASSIVE_TOOL.match(self.tool) is not None


def build_template_step(cycle: Cycle) -> TemplateStep:
    """Build the step for the action of a cycle."""
    parameters = to_plain_value(cycle.action.parameters)
    slots: list[Slot] = []
    thought = cycle.thought.content[:_MAX_CONTEXT_CHARACTERS]
    _find_slots(parameters, (), _SlotContext("", parameters, thought, is_in_form=False), slots)
    tool = cycle.action.tool_name
    return TemplateStep(
        tool, parameters, build_shape(tool, parameters, slots), tuple(slots), cycle.timestamp, cycle.entry_id
    )


def redact_secrets(steps: Sequence[TemplateStep], reach: int) -> list[TemplateStep | None]:
    """Remove secrets from consecutive steps; a step whose fixed part contains a secret becomes None.

    Secrets are values that look like one, and all values typed near a password. Values that repeat a secret are
    redacted too.

    Args:
        steps: The steps in their order.
        reach: Number of steps before and after a step that count as near.
    """

    def near(index: int) -> slice:
        return slice(max(0, index - reach), index + reach + 1)

    # First find all secrets, then redact: a user name may be typed before the password that reveals the login, and a
    # secret may be repeated in an earlier or later step.

    has_password = [any(slot.is_password for slot in step.slots) for step in steps]
    in_login = [any(has_password[near(index)]) for index in range(len(steps))]
    own = [
        {str(slot.value) for slot in step.slots if slot.value is not None and (slot.is_secret or is_login)}
        for step, is_login in zip(steps, in_login, strict=True)
    ]
    return [_redact_step(step, set().union(*own[near(index)])) for index, step in enumerate(steps)]


def _redact_step(step: TemplateStep, secrets: set[str]) -> TemplateStep | None:
    if any(_contains_secret(step.shape, secret) for secret in secrets):
        return None
    slots = tuple(
        replace(slot, value=None, is_secret=True) if _reveals_secret(slot, secrets) else slot
        for slot in step.slots
    )
    hidden = {slot.path: None for slot in slots if slot.is_secret}
    return replace(step, slots=slots, parameters=replace_at_paths(step.parameters, hidden))


def _reveals_secret(slot: Slot, secrets: Iterable[str]) -> bool:
    text = str(slot.value)
    return slot.is_secret or any(secret == text or _contains_secret(text, secret) for secret in secrets)


def _contains_secret(text: str, secret: str) -> bool:
    # A secret that is a short word may occur by chance: a selector often contains "password". The shape is JSON, so
    # compare with the JSON form too, in which quotes are escaped.
    is_word = secret.isalpha() and len(secret) < 12
    return len(secret) >= 4 and not is_word and (secret in text or json.dumps(secret)[1:-1] in text)


def replace_at_paths(value: object, at: Mapping[ParameterPath, Any], path: ParameterPath = ()) -> Any:  # noqa: ANN401 - any JSON value
    """Return a copy of a JSON value with the values at the given paths replaced."""
    if path in at:
        return at[path]
    if isinstance(value, dict):
        return {key: replace_at_paths(item, at, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [replace_at_paths(item, at, (*path, index)) for index, item in enumerate(value)]
    return value


def build_shape(tool: str, parameters: object, slots: Sequence[Slot]) -> str:
    """Build the key that equal steps share: tool and parameters, with numbered placeholders for slots."""
    masks = {slot.path: {"typed in": number} for number, slot in enumerate(slots, 1)}
    return json.dumps([tool, replace_at_paths(parameters, masks)], sort_keys=True)


@dataclass(frozen=True, slots=True)
class _SlotContext:
    name: str
    siblings: Mapping[str, Any]
    thought: str
    is_in_form: bool

    @property
    def sibling_text(self) -> str:
        """Text of the parameters next to the value."""
        texts = (text for name, text in self.siblings.items() if name != self.name and isinstance(text, str))
        return " ".join(text[:_MAX_CONTEXT_CHARACTERS] for text in texts)


def _find_slots(value: object, path: ParameterPath, context: _SlotContext, slots: list[Slot]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            inner = _SlotContext(key, value, context.thought, context.is_in_form or key in _FORM_NAMES)
            _find_slots(item, (*path, key), inner, slots)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _find_slots(item, (*path, index), context, slots)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        slot = _build_slot(value, path, context)
        if slot is not None:
            slots.append(slot)


def _build_slot(value: str | float, path: ParameterPath, context: _SlotContext) -> Slot | None:
    name, text = context.name, str(value)
    is_typed = name.lower() in _VALUE_NAMES or (context.is_in_form and name.lower() not in _STRUCTURE_NAMES)
    name_words, is_password, is_named_secret = _classify_name(name)
    is_secret = (
        is_named_secret
        or _has_secret(text)
        or (name.lower() in _COMMAND_NAMES and _has_secret_in_command(text))
    )
    # A value that is not typed in is fixed and needs no slot, unless it must be hidden.
    if not is_typed:
        if not is_secret:
            return None
        return Slot(
            path=path, name=_to_slug(name) or "value", value=value, is_secret=True, is_password=is_password
        )
    # The parameters next to a value describe its purpose; without any, the thought of the agent does. For secrets,
    # the thought counts in any case: hiding too much is harmless.
    description = f"{name_words} {context.sibling_text.strip() or context.thought}"
    is_password = _PASSWORD.search(description) is not None
    hints = f"{description} {context.thought}"
    is_secret = (
        is_secret
        or _looks_like_secret(text)
        or any(pattern.search(hints) for pattern in (_PASSWORD, _SECRET_NAME))
    )
    return Slot(
        path=path,
        name=_find_field_name(name, context.siblings),
        value=value,
        is_secret=is_secret,
        is_password=is_password,
        is_search=_SEARCH.search(description) is not None,
    )


@lru_cache(maxsize=1_000)
def _classify_name(name: str) -> tuple[str, bool, bool]:
    """Return the words of a parameter name, True if it names a password, and True if it names any secret."""
    words = f"{name} {_CAMEL_CASE_BOUNDARY.sub(' ', name).replace('_', ' ').replace('-', ' ')}"
    is_password = _PASSWORD.search(words) is not None
    return words, is_password, is_password or _SECRET_NAME.search(words) is not None


def _has_secret(text: str) -> bool:
    if len(text) > _MAX_LITERAL_CHARACTERS or _SECRET_IN_URL.search(text):
        return True
    return any(secret.pattern.search(text) for secret in SECRET_PATTERNS)


def _has_secret_in_command(command: str) -> bool:
    return _SECRET_IN_COMMAND.search(command) is not None or _PERSONAL.search(command) is not None


def _looks_like_secret(text: str) -> bool:
    # Only called for typed values: a selector may look as random as a password. Secret are personal data, long tokens
    # of letters and digits, and single words with at least three classes of characters.
    if _PERSONAL.search(text) or any(
        _DIGIT.search(run) and _LETTER.search(run) for run in _TOKEN.findall(text)
    ):
        return True
    is_one_word = len(text) >= 6 and not re.search(r"\s", text)
    return is_one_word and sum(pattern.search(text) is not None for pattern in _CHARACTER_CLASSES) >= 3


def _find_field_name(name: str, siblings: Mapping[str, Any]) -> str:
    # {"selector": "input[name='email']", "text": "..."}: "text" does not name the field, the selector does.
    if name.lower() not in _PLAIN_NAMES:
        return _to_slug(name) or "value"
    for sibling in _FIELD_NAMES:
        text = siblings.get(sibling)
        if sibling != name and isinstance(text, str) and not _has_secret(text):
            names = _ATTRIBUTE.findall(text) or _CSS_NAME.findall(text)
            if slug := _to_slug(names[-1] if names else text):
                return slug
    return _to_slug(name) or "value"


def _to_slug(text: str) -> str:
    slug = (
        _NON_NAME_CHARACTERS.sub("_", _CAMEL_CASE_BOUNDARY.sub("_", text[:80]).lower())
        .strip("_")[:40]
        .strip("_")
    )
    # A placeholder must be an identifier.
    return slug if slug and not slug[0].isdigit() else ""
