"""Exceptions raised by langmem-tiers.

::

    LangmemTiersError
    ├── InvalidInputError            (ValueError)   an argument cannot be used
    │   ├── InvalidNameError                        a namespace, session name or message id
    │   ├── InvalidMessageError                     a role, text, time or payload
    │   └── InvalidConfigError                      a URL or a setting
    ├── NotFoundError                (LookupError)  the requested object does not exist
    │   ├── SessionNotFoundError
    │   ├── MessageNotFoundError
    │   ├── EntryNotFoundError
    │   └── PoolNotFoundError
    ├── MessageConflictError         (ValueError)   the id already belongs to a different message
    ├── PoolExistsError              (ValueError)   the pool name is already in use
    ├── NotAllowedError              (PermissionError) a namespace lacks a permission in a pool
    ├── BudgetExceededError          (ValueError)   required content does not fit the budget
    ├── EmbeddingError               (RuntimeError) an embedder failed or returned an invalid vector
    ├── PlanOutdatedError            (RuntimeError) the session changed after the plan was made
    ├── ContextConflictError         (RuntimeError) another process saved the context first
    ├── StorageError                                the database failed
    │   ├── StorageUnavailableError  (OSError)      cannot be reached or opened
    │   ├── StorageBusyError         (TimeoutError) locked for longer than the busy timeout
    │   ├── StorageReadOnlyError     (OSError)      cannot be written
    │   ├── StorageFullError         (OSError)      no space left
    │   ├── StorageCorruptError                     damaged, or not a database
    │   ├── UnsavedError             (TimeoutError) messages are queued but not stored yet
    │   └── SchemaVersionError                      written by a newer release
    ├── BackupError                                 a backup was not created or not restored
    │   ├── NotABackupError          (ValueError)   the file is not a backup
    │   ├── DamagedBackupError       (ValueError)   truncated or modified
    │   ├── NewerBackupError                        written by a newer release
    │   ├── RestoreConflictError     (RuntimeError) the restore target is not empty
    │   └── BackupFileError          (OSError)      the file cannot be read or written
    ├── EngineClosedError            (RuntimeError) used after ``close()``
    └── MissingExtraError            (ImportError)  an optional package is not installed

Each message contains the rejected value and the next step. No error leaves a partial
write behind.
"""

__all__ = [
    "BackupError",
    "BackupFileError",
    "BudgetExceededError",
    "ContextConflictError",
    "DamagedBackupError",
    "EmbeddingError",
    "EngineClosedError",
    "EntryNotFoundError",
    "InvalidConfigError",
    "InvalidInputError",
    "InvalidMessageError",
    "InvalidNameError",
    "LangmemTiersError",
    "MessageConflictError",
    "MessageNotFoundError",
    "MissingExtraError",
    "NewerBackupError",
    "NotABackupError",
    "NotAllowedError",
    "NotFoundError",
    "PlanOutdatedError",
    "PoolExistsError",
    "PoolNotFoundError",
    "RestoreConflictError",
    "SchemaVersionError",
    "SessionNotFoundError",
    "StorageBusyError",
    "StorageCorruptError",
    "StorageError",
    "StorageFullError",
    "StorageReadOnlyError",
    "StorageUnavailableError",
    "UnsavedError",
]


# The second base class of an exception is the matching built-in, so callers can also catch ValueError,
# LookupError, OSError and so on without importing this module.


class LangmemTiersError(Exception):
    """Base class of all langmem-tiers exceptions."""


class InvalidInputError(LangmemTiersError, ValueError):
    """An argument cannot be used; nothing was written."""


class InvalidNameError(InvalidInputError):
    """A namespace, session name or message id is invalid."""


class InvalidMessageError(InvalidInputError):
    """A message's role, text, time or payload cannot be stored without loss."""


class InvalidConfigError(InvalidInputError):
    """A database URL or a setting is invalid."""


class NotFoundError(LangmemTiersError, LookupError):
    """The requested object does not exist."""


class SessionNotFoundError(NotFoundError):
    """The session was never created, or was deleted."""


class MessageNotFoundError(NotFoundError):
    """The session does not contain a message with this id."""


class EntryNotFoundError(NotFoundError):
    """The memory does not exist."""


class PoolNotFoundError(NotFoundError):
    """The pool was never created, or was deleted."""


class MessageConflictError(LangmemTiersError, ValueError):
    """The message id already belongs to a message with other content; nothing was written."""


class PoolExistsError(LangmemTiersError, ValueError):
    """A pool with this name already exists; nothing was written."""


class NotAllowedError(LangmemTiersError, PermissionError):
    """The namespace lacks permission for this pool operation; nothing was read or written."""


class BudgetExceededError(LangmemTiersError, ValueError):
    """Required content of a context exceeds the token budget; nothing was truncated."""


class EmbeddingError(LangmemTiersError, RuntimeError):
    """The embedder raised, timed out or returned an invalid vector; recall continues with words only."""


class PlanOutdatedError(LangmemTiersError, RuntimeError):
    """The session was compressed after the plan was made; nothing was written."""


class ContextConflictError(LangmemTiersError, RuntimeError):
    """The context is based on an older version than the stored one; nothing was written."""


class StorageError(LangmemTiersError):
    """The database failed; writes acknowledged before are unaffected."""


class StorageUnavailableError(StorageError, OSError):
    """The database cannot be reached or opened."""


class StorageBusyError(StorageError, TimeoutError):
    """The database stayed locked for longer than the busy timeout."""


class StorageReadOnlyError(StorageError, OSError):
    """The database cannot be written."""


class StorageFullError(StorageError, OSError):
    """The disk, or the quota of the database, is full."""


class StorageCorruptError(StorageError):
    """The file is damaged or is not a database."""


class UnsavedError(StorageError, TimeoutError):
    """Queued messages are not stored yet; they keep their ids, so do not add them again."""


class SchemaVersionError(StorageError):
    """The database was written by a newer release than this one."""


class BackupError(LangmemTiersError):
    """The backup was not created or not restored; existing data is unchanged."""


class NotABackupError(BackupError, ValueError):
    """The file is not a backup."""


class DamagedBackupError(BackupError, ValueError):
    """The backup was truncated or modified; nothing was restored."""


class NewerBackupError(BackupError):
    """The backup was written by a newer release than this one."""


class RestoreConflictError(BackupError, RuntimeError):
    """The restore target already contains data, or another process wrote to it meanwhile."""


class BackupFileError(BackupError, OSError):
    """The backup file cannot be read or written."""


class EngineClosedError(LangmemTiersError, RuntimeError):
    """The engine was used after ``close()``."""


class MissingExtraError(LangmemTiersError, ImportError):
    """An optional package is not installed; the message contains the exact pip command."""
