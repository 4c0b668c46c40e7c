"""The optimizer's memory on SQL."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, or_, select, update

from langmem_tiers.common.namespaces import escape, namespace_key, unescape
from langmem_tiers.errors import StorageBusyError
from langmem_tiers.sessions.models import Savings
from langmem_tiers.sessions.repository import namespace_pk_of
from langmem_tiers.storage.driver_errors import OutrunError
from langmem_tiers.storage.retry_read import repeatable
from langmem_tiers.storage.schema import adaptive_parameters, leases, namespaces, optimization_snapshots
from langmem_tiers.tuning.models import KeptSnapshot, Snapshot, TuningParameters, TuningState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.storage.database import Database

_PENDING = "pending."  # before the names of what was saved since the last run
_is_pending = adaptive_parameters.c.name.startswith(_PENDING)
_TRIES = 20  # far more than two racing writers need
_PREVIOUS = "previous."  # before the names of the parameters as they were before the last change


class SqlTuningStore:
    """Serves the ``TuningStore`` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @repeatable
    def load(self, namespace: NamespacePath) -> TuningState | None:
        """What the last run left, if there was one."""
        query = (
            select(adaptive_parameters.c.name, adaptive_parameters.c.value)
            .join(namespaces)
            .where(namespaces.c.path == namespace_key(namespace))
        )
        with self._database.read() as connection:
            values: dict[str, float] = {row.name: row.value for row in connection.execute(query)}
        if "runs" not in values:
            return None
        return TuningState(
            parameters=_parameters(values, ""),
            previous=_parameters(values, _PREVIOUS) if f"{_PREVIOUS}min_relevance" in values else None,
            since=datetime.fromtimestamp(values["since"], UTC) if "since" in values else None,
            runs=int(values["runs"]),
            tokens_saved=int(values["tokens_saved"]),
        )

    def save(
        self,
        namespace: NamespacePath,
        state: TuningState,
        snapshot: Snapshot,
        *,
        keep: int,
        lease: tuple[str, str] | None = None,
    ) -> bool:
        """Write state and snapshot in one transaction and leave the newest ``keep`` snapshots."""
        values: dict[str, float] = {"runs": state.runs, "tokens_saved": state.tokens_saved}
        if state.since is not None:
            values["since"] = state.since.timestamp()
        values |= asdict(state.parameters)
        if state.previous is not None:
            values |= {f"{_PREVIOUS}{name}": value for name, value in asdict(state.previous).items()}
        for _ in range(_TRIES):
            # Two who write to a new namespace at once: one of them looks again and finds it.
            with suppress(OutrunError), self._database.write() as connection:
                path = namespace_key(namespace)
                if lease is not None and not (_is_held(connection, *lease) and _is_there(connection, path)):
                    return False  # who runs under a lease makes no namespace that was deleted meanwhile
                pk = namespace_pk_of(connection, path, snapshot.created_at)
                _put(connection, pk, values, snapshot)
                _prune(connection, pk, keep)
                return True
        raise StorageBusyError("others save the same parameters all the time: try again later")

    def add_savings(self, namespace: NamespacePath, savings: Savings, now: datetime) -> None:
        """Add what was saved between two runs."""
        added = {f"{_PENDING}{name}": value for name, value in asdict(savings).items() if value}
        for _ in range(_TRIES):
            with suppress(OutrunError), self._database.write() as connection:
                pk = namespace_pk_of(connection, namespace_key(namespace), now)
                for name, value in added.items():
                    _increase(connection, pk, name, float(value))
                return
        raise StorageBusyError("others add savings all the time: try again later")

    def take_savings(self, namespace: NamespacePath) -> Savings:
        """What was added since the last time."""
        pk = select(namespaces.c.pk).where(namespaces.c.path == namespace_key(namespace)).scalar_subquery()
        with self._database.write() as connection:
            taken = connection.execute(
                delete(adaptive_parameters)
                .where(adaptive_parameters.c.namespace_pk == pk, _is_pending)
                .returning(adaptive_parameters.c.name, adaptive_parameters.c.value)
            ).all()
        return Savings(**{row.name.removeprefix(_PENDING): int(row.value) for row in taken})

    def snapshots(self, namespace: NamespacePath, limit: int) -> tuple[Snapshot, ...]:
        """The newest snapshots, newest first."""
        return tuple(one.snapshot for one in self.snapshot_page(namespace, before=None, limit=limit))

    @repeatable
    def snapshot_page(
        self, namespace: NamespacePath, *, before: int | None, limit: int
    ) -> tuple[KeptSnapshot, ...]:
        """The newest snapshots before the handle ``before``, newest first."""
        row = optimization_snapshots.c
        query = (
            select(row.pk, row.created_at, row.body)
            .join(namespaces)
            .where(namespaces.c.path == namespace_key(namespace))
            .order_by(row.pk.desc())
            .limit(limit)
        )
        if before is not None:
            query = query.where(row.pk < before)
        with self._database.read() as connection:
            return tuple(KeptSnapshot(one.pk, _snapshot(one)) for one in connection.execute(query))

    @repeatable
    def acquire(self, lease: str, holder: str, now: datetime, until: datetime) -> bool:
        """Take a lease that nobody holds, that ran out or that is the holder's own."""
        name = escape(lease)
        with suppress(OutrunError), self._database.write() as connection:
            taken = connection.execute(
                update(leases)
                .where(leases.c.name == name, or_(leases.c.expires_at <= now, leases.c.holder == holder))
                .values(holder=holder, expires_at=until)
            )
            if taken.rowcount:
                return True
            if connection.execute(select(leases.c.name).where(leases.c.name == name)).first() is None:
                connection.execute(insert(leases).values(name=name, holder=holder, expires_at=until))
                return True
        return False

    @repeatable
    def release(self, lease: str, holder: str) -> None:
        """Give a lease back."""
        with self._database.write() as connection:
            connection.execute(
                delete(leases).where(leases.c.name == escape(lease), leases.c.holder == holder)
            )

    @repeatable
    def leases(self, start: str) -> Mapping[str, datetime]:
        """The leases whose names begin so, and when each runs out."""
        stored = escape(start)
        query = select(leases.c.name, leases.c.expires_at).where(
            func.substr(leases.c.name, 1, len(stored)) == stored
        )
        with self._database.read() as connection:
            return {unescape(row.name): row.expires_at for row in connection.execute(query)}


def _is_held(connection: Connection, lease: str, holder: str) -> bool:
    row = connection.execute(select(leases.c.holder).where(leases.c.name == escape(lease)).with_for_update())
    return row.scalar() == holder


def _is_there(connection: Connection, path: str) -> bool:
    return connection.execute(select(namespaces.c.pk).where(namespaces.c.path == path)).first() is not None


def _put(connection: Connection, namespace_pk: int, values: dict[str, float], snapshot: Snapshot) -> None:
    connection.execute(
        delete(adaptive_parameters).where(adaptive_parameters.c.namespace_pk == namespace_pk, ~_is_pending)
    )
    connection.execute(
        insert(adaptive_parameters),
        [
            {"namespace_pk": namespace_pk, "name": name, "value": float(value)}
            for name, value in values.items()
        ],
    )
    connection.execute(
        insert(optimization_snapshots).values(
            namespace_pk=namespace_pk, created_at=snapshot.created_at, body=_body(snapshot)
        )
    )


def _increase(connection: Connection, namespace_pk: int, name: str, by: float) -> None:
    row = adaptive_parameters.c
    increased = connection.execute(
        update(adaptive_parameters)
        .where(row.namespace_pk == namespace_pk, row.name == name)
        .values(value=row.value + by)
    )
    if not increased.rowcount:
        connection.execute(insert(adaptive_parameters).values(namespace_pk=namespace_pk, name=name, value=by))


def _prune(connection: Connection, namespace_pk: int, keep: int) -> None:
    snapshots = optimization_snapshots.c
    oldest = (
        select(snapshots.pk)
        .where(snapshots.namespace_pk == namespace_pk)
        .order_by(snapshots.pk.desc())
        .offset(keep - 1)
        .limit(1)
        .scalar_subquery()
    )
    connection.execute(
        delete(optimization_snapshots).where(snapshots.namespace_pk == namespace_pk, snapshots.pk < oldest)
    )


def _parameters(values: dict[str, float], prefix: str) -> TuningParameters:
    return TuningParameters(
        compression_trigger=values[f"{prefix}compression_trigger"],
        full_message_window=int(values[f"{prefix}full_message_window"]),
        min_relevance=values[f"{prefix}min_relevance"],
        target_usage=values[f"{prefix}target_usage"],
    )


def _body(snapshot: Snapshot) -> str:
    fields: dict[str, Any] = asdict(snapshot)
    del fields["created_at"]
    return json.dumps(fields)


def _snapshot(row: AnyRow) -> Snapshot:
    fields: dict[str, Any] = json.loads(row.body)
    parameters = TuningParameters(**fields.pop("parameters"))
    return Snapshot(created_at=row.created_at, parameters=parameters, **fields)
