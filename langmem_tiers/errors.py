"""Every error that langmem-tiers raises.

::

    LangmemTiersError
    ├── InvalidInputError            (ValueError)   something handed in cannot be used
    │   ├── InvalidNameError                        a namespace, session or message id
    │   ├── InvalidMessageError                     a role, text, time or payload
    │   └── InvalidConfigError                      a URL or a setting
    ├── NotFoundError                (LookupError)  what was asked for is not there
    │   ├── SessionNotFoundError
    │   ├── MessageNotFoundError
    │   ├── EntryNotFoundError
    │   └── PoolNotFoundError
    ├── MessageConflictError         (ValueError)   an id that names another message already
    ├── PoolExistsError              (ValueError)   a name that another pool has already
    ├── NotAllowedError              (PermissionError) a namespace has no right to that in a pool
    ├── BudgetExceededError          (ValueError)   what must be in a context does not fit it
    ├── EmbeddingError               (RuntimeError) an embedder failed, or gave what is no vector
    ├── PlanOutdatedError            (RuntimeError) a plan was made for a session as it no longer is
    ├── ContextConflictError         (RuntimeError) a context was saved by somebody else meanwhile
    ├── StorageError                                the database did not do what it was asked
    │   ├── StorageUnavailableError  (OSError)      cannot be reached or opened
    │   ├── StorageBusyError         (TimeoutError) locked by others for too long
    │   ├── StorageReadOnlyError     (OSError)      cannot be written
    │   ├── StorageFullError         (OSError)      no room left
    │   ├── StorageCorruptError                     damaged, or no database at all
    │   ├── UnsavedError             (TimeoutError) taken by a writer, and not stored yet
    │   └── SchemaVersionError                      written by a newer release
    ├── BackupError                                 a backup was not made, or not restored
    │   ├── NotABackupError          (ValueError)   the file is something else
    │   ├── DamagedBackupError       (ValueError)   cut or altered
    │   ├── NewerBackupError                        written by a newer release
    │   ├── RestoreConflictError     (RuntimeError) the place to restore to is taken
    │   └── BackupFileError          (OSError)      a file that cannot be read or written
    ├── EngineClosedError            (RuntimeError) used after ``close()``
    └── MissingExtraError            (ImportError)  an optional package is not installed

Each message names the value that was refused and the next step. No error leaves
half a write behind.
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


class LangmemTiersError(Exception):
    """The root: catch this to catch everything that langmem-tiers raises."""


class InvalidInputError(LangmemTiersError, ValueError):
    """Something handed in cannot be used; nothing was written."""


class InvalidNameError(InvalidInputError):
    """A namespace, a session name or a message id cannot be used."""


class InvalidMessageError(InvalidInputError):
    """A message's role, text, time or payload cannot be stored without loss."""


class InvalidConfigError(InvalidInputError):
    """A database URL or a setting makes no sense."""


class NotFoundError(LangmemTiersError, LookupError):
    """What was asked for is not there."""


class SessionNotFoundError(NotFoundError):
    """The session was never created, or was deleted."""


class MessageNotFoundError(NotFoundError):
    """The session holds no message with that id."""


class EntryNotFoundError(NotFoundError):
    """A memory that is not there."""


class PoolNotFoundError(NotFoundError):
    """The pool was never created, or was deleted."""


class MessageConflictError(LangmemTiersError, ValueError):
    """A message id is taken by a message with other content; nothing was written."""


class PoolExistsError(LangmemTiersError, ValueError):
    """A pool has that name already; nothing was written."""


class NotAllowedError(LangmemTiersError, PermissionError):
    """A namespace has not the right to do that in a pool; nothing was read or written."""


class BudgetExceededError(LangmemTiersError, ValueError):
    """What must be in a context takes more tokens than there are; nothing was cut short."""


class EmbeddingError(LangmemTiersError, RuntimeError):
    """An embedder raised, hung, or gave what is no vector; recall goes on by words."""


class PlanOutdatedError(LangmemTiersError, RuntimeError):
    """Somebody compressed the session after the plan was made; nothing was written."""


class ContextConflictError(LangmemTiersError, RuntimeError):
    """A context is based on an older version than the stored one; nothing was written."""


class StorageError(LangmemTiersError):
    """The database failed; what was acknowledged before is untouched."""


class StorageUnavailableError(StorageError, OSError):
    """The database cannot be reached or opened."""


class StorageBusyError(StorageError, TimeoutError):
    """Others held the database for longer than the busy timeout."""


class StorageReadOnlyError(StorageError, OSError):
    """The database cannot be written."""


class StorageFullError(StorageError, OSError):
    """The disk, or the quota of the database, is full."""


class StorageCorruptError(StorageError):
    """The file is damaged or is no database."""


class UnsavedError(StorageError, TimeoutError):
    """A writer has taken messages and not stored them yet: they wait under their ids, do not add them again."""


class SchemaVersionError(StorageError):
    """The database was written by a newer release than this one."""


class BackupError(LangmemTiersError):
    """A backup was not made or not restored; everything is as it was before."""


class NotABackupError(BackupError, ValueError):
    """The file is something else than a backup."""


class DamagedBackupError(BackupError, ValueError):
    """The backup was cut or altered; nothing of it was restored."""


class NewerBackupError(BackupError):
    """The backup was written by a newer release than this one."""


class RestoreConflictError(BackupError, RuntimeError):
    """The place to restore to holds something already, or somebody else wrote there meanwhile."""


class BackupFileError(BackupError, OSError):
    """The file of a backup cannot be read or written."""


class EngineClosedError(LangmemTiersError, RuntimeError):
    """The engine was used after ``close()``."""


class MissingExtraError(LangmemTiersError, ImportError):
    """An optional package is needed; the message holds the exact pip command."""
