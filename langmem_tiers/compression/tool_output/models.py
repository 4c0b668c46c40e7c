"""What a compressed extraction is: its parts, its prompt text, and whether its addresses are all there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from langmem_tiers.compression.selection import find_largest_fitting


class CompressionContentType(StrEnum):
    """Kinds of data that tools return; each has something else that must not be lost."""

    SEARCH_RESULTS = "search_results"
    """All addresses, with titles and snippets."""
    PAGE_STATE = "page_state"
    """All links, buttons and selectors."""
    TEXT_CONTENT = "text_content"
    """Key facts and the addresses in it."""
    ERROR_INFO = "error_info"
    """Type, message and how to go on."""
    STRUCTURED_DATA = "structured_data"
    """Names of fields, values and ids."""
    FORM_DATA = "form_data"
    """Names, types and selectors of the fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetails:
    """What went wrong, and what to try."""

    type: str
    message: str
    recovery: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedExtraction:
    """A large result of a tool in few words, with everything that an agent needs to go on from it."""

    summary: str
    """One line."""
    key_facts: tuple[str, ...] = ()
    urls_mentioned: list[str] = field(default_factory=list)
    """Each address once, in the order of the input."""
    navigation_targets: tuple[dict[str, str], ...] = ()
    """``{"label", "url"}``: those of the addresses that have a name."""
    form_fields: tuple[dict[str, str], ...] = ()
    """``{"name", "type"}``, and ``"selector"`` where there is one."""
    selectors: tuple[str, ...] = ()
    error: ErrorDetails | None = None
    compression_confidence: float = 1.0
    """0 to 1: how much of what could be told to matter is still there."""
    original_tokens: int = 0
    compressed_tokens: int = 0
    """Of ``format_for_prompt()``."""
    content_type: CompressionContentType = CompressionContentType.TEXT_CONTENT
    tier: int = 2
    urls_left_out: int = 0
    """Distinct addresses beyond the most that are kept."""
    problems: tuple[str, ...] = ()
    """Why a model's answer was not used, what was not read, what had to be put back."""

    def format_for_prompt(self, max_chars: int | None = None) -> str:
        """The lines for a prompt; every address ends a line of its own.

        Args:
            max_chars: Key facts give way to keep it, the last ones first; addresses and selectors never do.
        """
        if max_chars is None:
            return self._format_with_facts(len(self.key_facts))
        return self._format_with_facts(
            find_largest_fitting(
                len(self.key_facts), lambda kept: len(self._format_with_facts(kept)) <= max_chars
            )
        )

    def _format_with_facts(self, number: int) -> str:
        facts = self.key_facts[:number]
        head = f"[Compressed {self.content_type.value}, tier {self.tier}]"
        lines = [head, *([f"Summary: {self.summary}"] if self.summary and self.error is None else [])]
        if self.error is not None:
            lines.append(f"Error: {self.error.type}: {self.error.message}")
            lines += [f"Try: {self.error.recovery}"] if self.error.recovery else []
        lines += _format_section("Key facts:", [f"- {fact}" for fact in facts])
        targets = [
            f"{number}. {one['label']}: {one['url']}" for number, one in enumerate(self.navigation_targets, 1)
        ]
        lines += _format_section("Links:", targets)
        named = {one["url"] for one in self.navigation_targets}
        lines += _format_section("URLs:", [f"- {url}" for url in self.urls_mentioned if url not in named])
        if self.urls_left_out:
            lines.append(f"({self.urls_left_out} more URLs were left out)")
        lines += _format_section("Form fields:", [_format_field(one) for one in self.form_fields])
        # A selector may hold a comma or a space, so each has a line; none that a button or field shows already.
        shown = "\n".join([*facts, *lines[-len(self.form_fields) :], ""])
        handles = {one["label"].partition(" ")[0] for one in self.navigation_targets}
        rest = [one for one in self.selectors if f" {one}\n" not in shown and one not in handles]
        lines += _format_section("Selectors:", [f"- {one}" for one in rest])
        return "\n".join(lines)

    def validate_url_preservation(self, original_url_count: int) -> tuple[bool, str]:
        """Whether there are as many addresses as there were, and a sentence that says so.

        Args:
            original_url_count: Distinct addresses of the original.
        """
        kept = len(set(self.urls_mentioned))
        if kept >= original_url_count:
            return True, f"all {original_url_count} URLs preserved"
        return False, f"{original_url_count - kept} of {original_url_count} URLs lost"

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        } | {"content_type": self.content_type.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CompressedExtraction:
        """The result that `to_dict` wrote; keys that are not known are passed over."""
        known: dict[str, Any] = {one.name: data[one.name] for one in fields(cls) if one.name in data}
        for key in ("key_facts", "selectors", "problems"):
            known[key] = tuple(known.get(key) or ())
        known["urls_mentioned"] = list(known.get("urls_mentioned") or ())
        for key in ("navigation_targets", "form_fields"):
            known[key] = tuple(dict(one) for one in known.get(key) or ())
        if isinstance(known.get("error"), Mapping):
            known["error"] = ErrorDetails(**known["error"])
        if "content_type" in known:
            known["content_type"] = CompressionContentType(known["content_type"])
        known.setdefault("summary", "")
        return cls(**known)


def _format_section(title: str, lines: list[str]) -> list[str]:
    return [title, *lines] if lines else []


def _format_field(field: Mapping[str, str]) -> str:
    selector = field.get("selector", "")
    return f"- {field['name']} ({field['type']})" + (f" {selector}" if selector else "")
