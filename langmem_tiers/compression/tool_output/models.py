"""Data models of compressed tool results, their prompt text and serialization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from langmem_tiers.text.sentences import find_largest_fitting


class CompressionContentType(StrEnum):
    """Type of a tool result, which determines the parts that compression keeps."""

    SEARCH_RESULTS = "search_results"
    """Keeps all URLs, with titles and snippets."""
    PAGE_STATE = "page_state"
    """Keeps all links, buttons and selectors."""
    TEXT_CONTENT = "text_content"
    """Keeps key facts and URLs."""
    ERROR_INFO = "error_info"
    """Keeps type, message and advice."""
    STRUCTURED_DATA = "structured_data"
    """Keeps field names, values and ids."""
    FORM_DATA = "form_data"
    """Keeps names, types and selectors of the fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetails:
    """Error of a tool, with advice for the next step."""

    type: str
    message: str
    recovery: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedExtraction:
    """A compressed tool result with everything that an agent needs to continue."""

    summary: str
    """Description in one line."""
    key_facts: tuple[str, ...] = ()
    urls_mentioned: list[str] = field(default_factory=list)
    """URLs without duplicates, in the order of the input."""
    navigation_targets: tuple[dict[str, str], ...] = ()
    """URLs that have a label, as ``{"label", "url"}``."""
    form_fields: tuple[dict[str, str], ...] = ()
    """Form fields as ``{"name", "type"}``, with ``"selector"`` if known."""
    selectors: tuple[str, ...] = ()
    error: ErrorDetails | None = None
    compression_confidence: float = 1.0
    """Share of the detected facts that were kept, as a score from 0 to 1."""
    original_tokens: int = 0
    compressed_tokens: int = 0
    """Number of tokens of ``format_for_prompt()``."""
    content_type: CompressionContentType = CompressionContentType.TEXT_CONTENT
    tier: int = 2
    urls_left_out: int = 0
    """Number of distinct URLs above the limit."""
    problems: tuple[str, ...] = ()
    """Problems: unusable model answers, unread parts, restored URLs."""

    def format_for_prompt(self, max_chars: int | None = None) -> str:
        """Render the result for a prompt. Every URL is at the end of a line.

        Args:
            max_chars: Maximum length. Key facts are dropped to meet it, the last ones first; URLs and selectors are
                always kept, even if the result is too long.
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
            f"{number}. {target['label']}: {target['url']}"
            for number, target in enumerate(self.navigation_targets, 1)
        ]
        lines += _format_section("Links:", targets)
        named = {target["url"] for target in self.navigation_targets}
        lines += _format_section("URLs:", [f"- {url}" for url in self.urls_mentioned if url not in named])
        if self.urls_left_out:
            lines.append(f"({self.urls_left_out} more URLs were left out)")
        field_lines = [_format_field(form_field) for form_field in self.form_fields]
        lines += _format_section("Form fields:", field_lines)
        # A selector may contain commas and spaces, so each gets its own line. Selectors that are already shown with
        # a button, a field or a link are skipped.
        shown = "\n".join([*facts, *field_lines, ""])
        handles = {target["label"].partition(" ")[0] for target in self.navigation_targets}
        rest = [
            selector
            for selector in self.selectors
            if f" {selector}\n" not in shown and selector not in handles
        ]
        lines += _format_section("Selectors:", [f"- {selector}" for selector in rest])
        return "\n".join(lines)

    def validate_url_preservation(self, original_url_count: int) -> tuple[bool, str]:
        """Check that no URL was lost. Return the outcome and a message.

        Args:
            original_url_count: Number of distinct URLs in the original.
        """
        kept = len(set(self.urls_mentioned))
        if kept >= original_url_count:
            return True, f"all {original_url_count} URLs preserved"
        return False, f"{original_url_count - kept} of {original_url_count} URLs lost"

    def to_dict(self) -> dict[str, Any]:
        """Serialize the result as JSON values."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        } | {"content_type": self.content_type.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CompressedExtraction:
        """Restore a result from the values of ``to_dict``. Unknown keys are ignored."""
        known: dict[str, Any] = {
            attribute.name: data[attribute.name] for attribute in fields(cls) if attribute.name in data
        }
        for key in ("key_facts", "selectors", "problems"):
            known[key] = tuple(known.get(key) or ())
        known["urls_mentioned"] = list(known.get("urls_mentioned") or ())
        for key in ("navigation_targets", "form_fields"):
            known[key] = tuple(dict(item) for item in known.get(key) or ())
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
