"""Actions as steps of a pattern: what is the same each time, and what is typed in.

What looks like a secret never gets out of here sealed: not in a shape, not in a step, not in a name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers.common.plain_values import to_plain_value
from langmem_tiers.text.prompt_injection import SECRET_PATTERNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langmem_tiers.tasks.models import MemoryEntry

_MAX_LITERAL_CHARACTERS = 2_000  # characters; what is longer is data, never a part of a pattern
_MAX_CONTEXT_CHARACTERS = 500  # of a thought, and of what stands beside a field
_VALUE_NAMES = frozenset(
    "text value values content input keys string query q search search_term search_query term message body "
    "email username user login first_name last_name full_name phone address comment answer".split()
)
_PLAIN_NAMES = frozenset(
    "text value values content input keys string message body".split()
)  # they name no field
_FORM_NAMES = frozenset("fields form form_data data inputs values json payload body".split())
_COMMAND_NAMES = frozenset("command cmd commands script code shell args arguments argv sql".split())
_STRUCTURE_NAMES = frozenset(
    "selector xpath name id field label type tag role index element target url key".split()
)
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
    # DB_PASSWORD=x, "Authorization: x"; --password x; curl -u me:x; mysql -px; sshpass -p x; https://me:x@host
    r"(?:password|passwd|passphrase|pwd|secret|token|(?:api|access)[-_]?key|credentials?|authorization)[\"']? ?[=:] ?\S"
    r"|--(?:pass|pwd|secret|token|api-?key|credential)[\w-]{0,20}[ =]\S"
    r"|(?:^|\s)(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,80}:\S"
    r"|\bmysql\w{0,20}\s.{0,200}?-p\S|\bsshpass\b|://[^\s/@:]{0,80}:[^\s/@]{1,80}@",
    re.IGNORECASE,
)
_PERSONAL = re.compile(r"[^\s@]@[^\s@]+\.[^\s@]|(?:\d[ -]?){12}")  # mail addresses, numbers of cards
_TOKEN = re.compile(r"[A-Za-z0-9+/=_.~-]{20,}")
_DIGIT, _LETTER = re.compile(r"\d"), re.compile("[A-Za-z]")
_CHARACTER_CLASSES = tuple(map(re.compile, ("[a-z]", "[A-Z]", r"\d", r"[^\w\s]")))
_SEARCH = re.compile(r"search|query|\bq\b", re.IGNORECASE)
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
"""Where in the parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place of a step where something is typed in."""

    path: ParameterPath
    name: str
    value: str | int | float | None
    """None once it is sealed."""
    is_secret: bool
    is_password: bool = False
    is_search: bool = False


@dataclass(frozen=True, slots=True)
class TemplateStep:
    """An action as a step: equal shapes do the same thing, whatever is typed in."""

    tool: str
    parameters: dict[str, Any]
    shape: str
    slots: tuple[Slot, ...]
    timestamp: float
    cycle_id: str = ""
    """Id of the cycle that took it."""

    @property
    def is_passive(self) -> bool:
        """Whether it only waits or looks, or is nothing but a secret command."""
        is_blank = len(self.slots) == 1 == len(self.parameters) and self.slots[0].name in _COMMAND_NAMES
        return is_blank or _PASSIVE_TOOL.match(self.tool) is not None


def build_template_step(entry: MemoryEntry) -> TemplateStep:
    """The step that a cycle took."""
    parameters = to_plain_value(entry.action.parameters)
    slots: list[Slot] = []
    thought = entry.thought.content[:_MAX_CONTEXT_CHARACTERS]
    _find_slots(parameters, (), _SlotContext("", parameters, thought, is_in_form=False), slots)
    tool = entry.action.tool_name
    return TemplateStep(
        tool, parameters, build_shape(tool, parameters, slots), tuple(slots), entry.timestamp, entry.entry_id
    )


def redact_secrets(steps: Sequence[TemplateStep], reach: int) -> list[TemplateStep | None]:
    """Steps that were taken one after the other, without their secrets; None for one that does not do without.

    A secret is what looks like one, and all that is typed near a password. What repeats a secret is sealed like it.

    Args:
        steps: In their order.
        reach: How many steps before and behind are near.
    """

    def near(index: int) -> slice:
        return slice(max(0, index - reach), index + reach + 1)

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
    return slot.is_secret or any(one == text or _contains_secret(text, one) for one in secrets)


def _contains_secret(text: str, secret: str) -> bool:
    # A password that is a short word may stand in a selector by chance: "password" does in most.
    is_word = secret.isalpha() and len(secret) < 12
    return len(secret) >= 4 and not is_word and (secret in text or json.dumps(secret)[1:-1] in text)


def replace_at_paths(value: object, at: Mapping[ParameterPath, Any], path: ParameterPath = ()) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value with others in place of what stands at some paths."""
    if path in at:
        return at[path]
    if isinstance(value, dict):
        return {key: replace_at_paths(one, at, (*path, key)) for key, one in value.items()}
    if isinstance(value, list):
        return [replace_at_paths(one, at, (*path, index)) for index, one in enumerate(value)]
    return value


def build_shape(tool: str, parameters: object, slots: Sequence[Slot]) -> str:
    """What two steps share that do the same thing."""
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
        """What stands beside a value."""
        beside = (one for name, one in self.siblings.items() if name != self.name and isinstance(one, str))
        return " ".join(one[:_MAX_CONTEXT_CHARACTERS] for one in beside)


def _find_slots(value: object, path: ParameterPath, around: _SlotContext, slots: list[Slot]) -> None:
    if isinstance(value, dict):
        for key, one in value.items():
            inside = _SlotContext(key, value, around.thought, around.is_in_form or key in _FORM_NAMES)
            _find_slots(one, (*path, key), inside, slots)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            _find_slots(one, (*path, index), around, slots)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        slot = _build_slot(value, path, around)
        if slot is not None:
            slots.append(slot)


def _build_slot(value: str | float, path: ParameterPath, around: _SlotContext) -> Slot | None:
    name, text = around.name, str(value)
    is_typed = name.lower() in _VALUE_NAMES or (around.is_in_form and name.lower() not in _STRUCTURE_NAMES)
    named, is_password, is_named_secret = _classify_name(name)
    is_secret = (
        is_named_secret
        or _has_secret(text)
        or (name.lower() in _COMMAND_NAMES and _has_secret_in_command(text))
    )
    if not is_typed:
        if not is_secret:
            return None
        return Slot(
            path=path, name=_to_slug(name) or "value", value=value, is_secret=True, is_password=is_password
        )
    # What stands beside a field says what it is for; where nothing does, what the agent thought.
    told = f"{named} {around.sibling_text.strip() or around.thought}"
    is_password = _PASSWORD.search(told) is not None
    hinted = f"{told} {around.thought}"
    is_secret = (
        is_secret or _looks_like_secret(text) or any(one.search(hinted) for one in (_PASSWORD, _SECRET_NAME))
    )
    return Slot(
        path=path,
        name=_find_field_name(name, around.siblings),
        value=value,
        is_secret=is_secret,
        is_password=is_password,
        is_search=_SEARCH.search(told) is not None,
    )


@lru_cache(maxsize=1_000)
def _classify_name(name: str) -> tuple[str, bool, bool]:
    """The words of a parameter's name, and whether it is one for a password, or for any secret."""
    named = f"{name} {_CAMEL_CASE_BOUNDARY.sub(' ', name).replace('_', ' ').replace('-', ' ')}"
    is_password = _PASSWORD.search(named) is not None
    return named, is_password, is_password or _SECRET_NAME.search(named) is not None


def _has_secret(text: str) -> bool:
    if len(text) > _MAX_LITERAL_CHARACTERS or _SECRET_IN_URL.search(text):
        return True
    return any(danger.pattern.search(text) for danger in SECRET_PATTERNS)


def _has_secret_in_command(command: str) -> bool:
    return _SECRET_IN_COMMAND.search(command) is not None or _PERSONAL.search(command) is not None


def _looks_like_secret(text: str) -> bool:
    # Only of what is typed: a selector may be as strange as a password.
    if _PERSONAL.search(text) or any(
        _DIGIT.search(run) and _LETTER.search(run) for run in _TOKEN.findall(text)
    ):
        return True
    is_one_word = len(text) >= 6 and not re.search(r"\s", text)
    return is_one_word and sum(one.search(text) is not None for one in _CHARACTER_CLASSES) >= 3


def _find_field_name(name: str, siblings: Mapping[str, Any]) -> str:
    if name.lower() not in _PLAIN_NAMES:
        return _to_slug(name) or "value"
    for beside in _FIELD_NAMES:
        told = siblings.get(beside)
        if beside != name and isinstance(told, str) and not _has_secret(told):
            marks = _ATTRIBUTE.findall(told) or _CSS_NAME.findall(told)
            if found := _to_slug(marks[-1] if marks else told):
                return found
    return _to_slug(name) or "value"


def _to_slug(text: str) -> str:
    found = (
        _NON_NAME_CHARACTERS.sub("_", _CAMEL_CASE_BOUNDARY.sub("_", text[:80]).lower())
        .strip("_")[:40]
        .strip("_")
    )
    return found if found and not found[0].isdigit() else ""
