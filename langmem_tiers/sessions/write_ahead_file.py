"""Files of unsaved messages in JSON Lines format: a header, then one line for each ``add()``.

Each line ends with a line feed. Text after the last line feed was being written when the process died. It was never
acknowledged, so readers ignore it.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.messages import Message, MessageToolCall, Role, check_time
from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.errors import InvalidConfigError, InvalidInputError, StorageBusyError
from langmem_tiers.sessions.batch_models import UnsavedMessages
from langmem_tiers.storage.file_io import hold_file_lock, replace_file, translate_file_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEADER = {"format": "langmem-tiers unsaved messages", "version": 1}
_APPEND_FLAGS = (
    os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
)


def _lock_file(path: Path, error: InvalidInputError) -> ExitStack:
    """Lock a file until the returned stack is closed; raise ``error`` if another writer has locked it."""
    stack = ExitStack()
    try:
        with translate_file_errors(path, "opened"):
            # The lock is a separate file, because the file itself is replaced while it is in use.
            stack.enter_context(hold_file_lock(path.with_name(f".{path.name}.lock"), 0.0))
    except StorageBusyError:
        raise error from None
    return stack


def open_unsaved_file(path: str | os.PathLike[str]) -> UnsavedFile:
    """Open a new file, locked for this writer until it is closed.

    Raises:
        InvalidConfigError: The file contains messages that were not recovered, or another writer uses it.
    """
    file_path = Path(path)
    problem = f"another writer uses the report file {str(file_path)!r}: give each writer its own path"
    file_lock = _lock_file(file_path, InvalidConfigError(problem))
    try:
        _check_unused(file_path)
    except BaseException:
        file_lock.close()
        raise
    return UnsavedFile(file_path, file_lock)


def _check_unused(path: Path) -> None:
    if path.exists() and (left := read_unsaved_file(path)):
        raise InvalidConfigError(
            f"{str(path)!r} contains {sum(len(unsaved.messages) for unsaved in left)} messages that were not "
            "stored: store them with engine.writer().recover(path), or move the file away"
        )


@contextmanager
def lock_unsaved_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Keep writers from using the file.

    Raises:
        InvalidInputError: The file does not exist, or a writer is using it.
    """
    file_path = Path(path)
    # Checked before locking, because locking creates a lock file.
    if not file_path.is_file():
        raise InvalidInputError(f"no file {str(file_path)!r}: pass the report_path of a writer")
    problem = f"a writer is using {str(file_path)!r}: close it, or wait until its process has ended"
    with _lock_file(file_path, InvalidInputError(problem)):
        yield


def rewrite_unsaved_file(path: str | os.PathLike[str], left: Iterable[UnsavedMessages]) -> None:
    """Replace the contents of a file that is not open; without messages, remove it."""
    file_path, lines = Path(path), [_encode_line(_to_fields(unsaved)) for unsaved in left]
    with translate_file_errors(file_path, "written"):
        if lines:
            replace_file(file_path, b"".join([_encode_line(_HEADER), *lines]))
        else:
            file_path.unlink(missing_ok=True)


def read_unsaved_file(path: str | os.PathLike[str]) -> tuple[UnsavedMessages, ...]:
    """Return the messages of a file, oldest first, without an incomplete last line.

    Raises:
        InvalidInputError: The file has another format or is damaged.
    """
    file_path = Path(path)
    with translate_file_errors(file_path, "read"):
        lines = file_path.read_bytes().split(b"\n")[:-1]
    if not lines:
        return ()
    header = _parse_json(file_path, 1, lines[0])
    if header.get("format") != _HEADER["format"]:
        raise InvalidInputError(
            f"{str(file_path)!r} is not a report of unsaved messages: pass the report file of a writer"
        )
    if header.get("version") != _HEADER["version"]:
        raise InvalidInputError(
            f"{str(file_path)!r} has version {header.get('version')!r}, this release reads version 1: "
            "use a newer release"
        )
    return tuple(_parse_unsaved(file_path, number, line) for number, line in enumerate(lines[1:], 2))


class UnsavedFile:
    """Open file of messages that are not stored."""

    def __init__(self, path: Path, file_lock: ExitStack) -> None:
        self._path = path
        self._file_lock = file_lock
        self._handle: int | None = None
        self._appended_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes appended since the contents were last replaced."""
        return self._appended_bytes

    def append(self, unsaved: UnsavedMessages) -> None:
        """Append messages to the file; they survive this process."""
        with translate_file_errors(self._path, "written"):
            if self._handle is None:
                self._handle = os.open(self._path, _APPEND_FLAGS, 0o600)
                if not os.fstat(self._handle).st_size:
                    _write_fully(self._handle, _encode_line(_HEADER))
            line = _encode_line(_to_fields(unsaved))
            before = os.fstat(self._handle).st_size
            try:
                _write_fully(self._handle, line)
            except BaseException:
                # Remove a partly written line: the next line would be appended to it.
                os.ftruncate(self._handle, before)
                raise
            self._appended_bytes += len(line)

    def replace(self, left: Iterable[UnsavedMessages]) -> None:
        """Replace the contents of the file; without messages, the file may be removed."""
        lines = [_encode_line(_to_fields(unsaved)) for unsaved in left]
        with translate_file_errors(self._path, "written"):
            if lines:
                # The handle refers to the file that is being replaced.
                self._close_handle()
                if not self._path.exists():
                    # The file contains conversations: create it readable by its owner only.
                    os.close(os.open(self._path, _APPEND_FLAGS, 0o600))
                replace_file(self._path, b"".join([_encode_line(_HEADER), *lines]))
            elif self._handle is not None:
                # Keep the open file with its header: the next append is cheap.
                os.ftruncate(self._handle, len(_encode_line(_HEADER)))
            else:
                self._path.unlink(missing_ok=True)
        self._appended_bytes = 0

    def close(self, *, quietly: bool = False) -> None:
        """Close and unlock the file; remove it if it contains no messages.

        Pass ``quietly`` in a forked child: the parent process still uses file and lock.
        """
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
    # os.write() may write only a part, for example on a full disk.
    written = os.write(handle, line)
    while written < len(line):
        written += os.write(handle, line[written:])


def _encode_line(fields: dict[str, Any]) -> bytes:
    # ASCII with escapes, so that lone surrogates, which UTF-8 cannot encode, are preserved.
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


def _to_fields(unsaved: UnsavedMessages) -> dict[str, Any]:
    return {
        "namespace": unsaved.namespace,
        "session": unsaved.session,
        "problem": unsaved.problem,
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
            for message in unsaved.messages
        ],
    }


def _parse_unsaved(path: Path, number: int, line: bytes) -> UnsavedMessages:
    fields = _parse_json(path, number, line)
    try:
        return UnsavedMessages(
            namespace=check_namespace(fields["namespace"]),
            session=check_name(fields["session"]),
            messages=tuple(_parse_message(message) for message in fields["messages"]),
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
            "tool_calls": tuple(MessageToolCall(*call) for call in fields["tool_calls"]),
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
        f"line {number} of {str(path)!r} is damaged: fix or remove the line; nothing of the file was stored"
    )
