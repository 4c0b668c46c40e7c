"""Messages that were not stored, as JSON Lines: a head, then one line for each ``add()``.

A line is written in one step and ends with a line feed. What follows the last one was being written when its process
died, so nobody was told that it was taken.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.messages import Message, Role, ToolCall, check_time
from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.errors import InvalidConfigError, InvalidInputError, StorageBusyError
from langmem_tiers.sessions.batch_models import UnsavedMessages
from langmem_tiers.storage.file_io import replace_file, translate_file_errors
from langmem_tiers.storage.file_locks import hold_file_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEADER = {"format": "langmem-tiers unsaved messages", "version": 1}
_APPEND_FLAGS = (
    os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
)


def _lock_file(path: Path, refusal: InvalidInputError) -> ExitStack:
    """The right to a file, until it is closed; the refusal, if somebody else has it."""
    held = ExitStack()
    try:
        with translate_file_errors(path, "opened"):
            held.enter_context(hold_file_lock(path.with_name(f".{path.name}.lock"), 0.0))
    except StorageBusyError:
        raise refusal from None
    return held


class JsonLinesUnsavedFileStore:
    """Serves the ``UnsavedFiles`` port."""

    def open(self, path: str | os.PathLike[str]) -> JsonLinesUnsavedFile:
        """A new file, of this writer alone for as long as it is open."""
        where = Path(path)
        refusal = f"another writer reports to {str(where)!r}: give each writer a path of its own"
        held = _lock_file(where, InvalidConfigError(refusal))
        try:
            self._check_unused(where)
        except BaseException:
            held.close()
            raise
        return JsonLinesUnsavedFile(where, held)

    def _check_unused(self, path: Path) -> None:
        if path.exists() and (left := self.read(path)):
            raise InvalidConfigError(
                f"{str(path)!r} holds {sum(len(one.messages) for one in left)} messages that were not stored: "
                "take them in with engine.writer().recover(path), or move the file away"
            )

    @contextmanager
    def lock(self, path: str | os.PathLike[str]) -> Iterator[None]:
        """Keep writers from a file meanwhile."""
        where = Path(path)
        if not where.is_file():  # before it is locked: nothing is left where there was nothing
            raise InvalidInputError(f"there is no file {str(where)!r}: name the writer's report_path")
        told = f"a writer that is at work reports to {str(where)!r}: close it, or wait until its process has ended"
        with _lock_file(where, InvalidInputError(told)):
            yield

    def rewrite(self, path: str | os.PathLike[str], left: Iterable[UnsavedMessages]) -> None:
        """Leave these in a file and no others."""
        where, lines = Path(path), [_encode_line(_to_fields(one)) for one in left]
        with translate_file_errors(where, "written"):
            if lines:
                replace_file(where, b"".join([_encode_line(_HEADER), *lines]))
            else:
                where.unlink(missing_ok=True)

    def read(self, path: str | os.PathLike[str]) -> tuple[UnsavedMessages, ...]:
        """What a file holds; what was being written when its process died is no part of it."""
        where = Path(path)
        with translate_file_errors(where, "read"):
            lines = where.read_bytes().split(b"\n")[:-1]
        if not lines:
            return ()
        head = _parse_json(where, 1, lines[0])
        if head.get("format") != _HEADER["format"]:
            raise InvalidInputError(
                f"{str(where)!r} is no report of unsaved messages: name the writer's file"
            )
        if head.get("version") != _HEADER["version"]:
            raise InvalidInputError(
                f"{str(where)!r} has the version {head.get('version')!r}, this release reads 1: use a newer one"
            )
        return tuple(_parse_unsaved(where, number, line) for number, line in enumerate(lines[1:], 2))


class JsonLinesUnsavedFile:
    """Serves the ``UnsavedFile`` port."""

    def __init__(self, path: Path, held: ExitStack) -> None:
        self._path = path
        self._file_lock = held
        self._handle: int | None = None
        self._appended_bytes = 0

    @property
    def size_bytes(self) -> int:
        """What was appended since it was last replaced."""
        return self._appended_bytes

    def append(self, one: UnsavedMessages) -> None:
        """Write it behind the others."""
        with translate_file_errors(self._path, "written"):
            if self._handle is None:
                self._handle = os.open(self._path, _APPEND_FLAGS, 0o600)
                if not os.fstat(self._handle).st_size:
                    _write_fully(self._handle, _encode_line(_HEADER))
            line = _encode_line(_to_fields(one))
            before = os.fstat(self._handle).st_size
            try:
                _write_fully(self._handle, line)
            except BaseException:
                os.ftruncate(self._handle, before)  # half a line would spoil the next
                raise
            self._appended_bytes += len(line)

    def replace(self, left: Iterable[UnsavedMessages]) -> None:
        """Hold these and no others."""
        lines = [_encode_line(_to_fields(one)) for one in left]
        with translate_file_errors(self._path, "written"):
            if lines:
                self._close_handle()
                if not self._path.exists():
                    os.close(os.open(self._path, _APPEND_FLAGS, 0o600))  # it holds what people said
                replace_file(self._path, b"".join([_encode_line(_HEADER), *lines]))
            elif self._handle is not None:
                os.ftruncate(self._handle, len(_encode_line(_HEADER)))
            else:
                self._path.unlink(missing_ok=True)
        self._appended_bytes = 0

    def close(self, *, quietly: bool = False) -> None:
        """Let go of it, and leave nothing behind where it holds nothing."""
        self._close_handle()
        if quietly:
            return
        with translate_file_errors(self._path, "removed"):
            if self._path.exists() and self._path.stat().st_size <= len(_encode_line(_HEADER)):
                self._path.unlink()
            self._path.with_name(f".{self._path.name}.lock").unlink(missing_ok=True)
        self._file_lock.close()

    def _close_handle(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _write_fully(handle: int, line: bytes) -> None:
    written = os.write(handle, line)
    while written < len(line):
        written += os.write(handle, line[written:])


def _encode_line(fields: dict[str, Any]) -> bytes:
    # ASCII: a lone surrogate comes back as it was.
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


def _to_fields(one: UnsavedMessages) -> dict[str, Any]:
    return {
        "namespace": one.namespace,
        "session": one.session,
        "problem": one.problem,
        "messages": [
            {
                "id": message.id,
                "role": message.role.value,
                "content": message.content,
                "created_at": message.created_at.isoformat(),
                "token_count": message.token_count,
                "token_counter": message.token_counter,
                "name": message.name,
                "tool_calls": [(call.id, call.name, call.arguments) for call in message.tool_calls],
                "tool_call_id": message.tool_call_id,
                "payload_json": message.payload_json,
            }
            for message in one.messages
        ],
    }


def _parse_unsaved(path: Path, number: int, line: bytes) -> UnsavedMessages:
    fields = _parse_json(path, number, line)
    try:
        return UnsavedMessages(
            namespace=check_namespace(fields["namespace"]),
            session=check_name(fields["session"]),
            messages=tuple(_parse_message(one) for one in fields["messages"]),
            problem=fields["problem"],
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _build_damaged_error(path, number) from None


def _parse_message(fields: dict[str, Any]) -> Message:
    return Message(
        **fields
        | {
            "id": check_name(fields["id"], "message id"),
            "role": Role(fields["role"]),
            "created_at": check_time(datetime.fromisoformat(fields["created_at"])),
            "tool_calls": tuple(ToolCall(*call) for call in fields["tool_calls"]),
        }
    )


def _parse_json(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError:
        raise _build_damaged_error(path, number) from None
    if not isinstance(fields, dict):
        raise _build_damaged_error(path, number)
    return fields


def _build_damaged_error(path: Path, number: int) -> InvalidInputError:
    return InvalidInputError(
        f"line {number} of {str(path)!r} is damaged: mend or remove it; nothing of the file was taken in"
    )
