"""Storage of the optimizer's parameters, snapshots and leases on SQL."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, or_, select, update

from langmem_tiers.common.namespaces import build_namespace_key, escape, unescape
from langmem_tiers.sessions.models import Savings
from langmem_tiers.sessions.repository import get_or_create_namespace
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.retry_write import retry_on_conflict
from langmem_tiers.storage.schema import adaptive_parameters, leases, namespaces, optimization_snapshots
from langmem_tiers.tuning.models import StoredSnapshot, TuningParameters, TuningSnapshot, TuningState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.storage.database import Database

_PENDING_PREFIX = "pending."  # prefix of the names of savings since the last run
_IS_PENDING = adaptive_parameters.c.name.startswith(_PENDING_PREFIX)
_PREVIOUS_PREFIX = "previous."  # prefix of the names of the parameters before the last change


class TuningRepository:
    """Repository of the state of the optimizer, its snapshots and the leases of exclusive jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retry_on_disconnect
    def load(self, namespace: NamespacePath) -> TuningState | None:
        """Return the state after the last run, or None if there was none."""
        query = (
            select(adaptive_parameters.c.name, adaptive_parameters.c.value)
            .join(namespaces)
            .where(namespaces.c.path == build_namespace_key(namespace))
        )
        with self._database.read() as connection:
            values: dict[str, float] = {row.name: row.value for row in connection.execute(query)}
        if "runs" not in values:
            return None
        return TuningState(
            parameters=_build_parameters(values, ""),
            previous_parameters=_build_parameters(values, _PREVIOUS_PREFIX)
            if f"{_PREVIOUS_PREFIX}min_relevance" in values
            else None,
            last_full_run_at=datetime.fromtimestamp(values["since"], UTC) if "since" in values else None,
            runs=int(values["runs"]),
            tokens_saved=int(values["tokens_saved"]),
        )

    def save(
        self,
        namespace: NamespacePath,
        state: TuningState,
        snapshot: TuningSnapshot,
        *,
        keep: int,
        lease: tuple[str, str] | None = None,
    ) -> bool:
        """Write state and snapshot in one transaction and keep only the newest ``keep`` snapshots.

        Args:
            namespace: Namespace of the run.
            state: State to save.
            snapshot: Report of the run.
            keep: Number of snapshots to keep.
            lease: Name of a lease and its required holder. Default: no lease is required.

        Returns:
            False, with nothing written, if another holder has the lease or the namespace does not exist.
        """
        values: dict[str, float] = {"runs": state.runs, "tokens_saved": state.tokens_saved}
        if state.last_full_run_at is not None:
            values["since"] = state.last_full_run_at.timestamp()
        values |= asdict(state.parameters)
        if state.previous_parameters is not None:
            values |= {
                f"{_PREVIOUS_PREFIX}{name}": value
                for name, value in asdict(state.previous_parameters).items()
            }

        def write() -> bool:
            # If two processes create the same namespace at once, one of them fails, tries again and finds it.
            with self._database.write() as connection:
                path = build_namespace_key(namespace)
                if lease is not None and not (
                    _is_lease_held(connection, *lease) and _has_namespace(connection, path)
                ):
                    # A run must not recreate a namespace that was erased in the meantime.
                    return False
                pk = get_or_create_namespace(connection, path, snapshot.created_at)
                _insert_run(connection, pk, values, snapshot)
                _prune_snapshots(connection, pk, keep)
                return True

        return retry_on_conflict(write, "the parameters are being modified concurrently: try again later")

    def add_savings(self, namespace: NamespacePath, savings: Savings, now: datetime) -> None:
        """Add savings that were made between two runs."""
        added = {f"{_PENDING_PREFIX}{name}": value for name, value in asdict(savings).items() if value}

        def write() -> bool:
            with self._database.write() as connection:
                pk = get_or_create_namespace(connection, build_namespace_key(namespace), now)
                for name, value in added.items():
                    _increment_value(connection, pk, name, float(value))
            return True

        retry_on_conflict(write, "the savings are being modified concurrently: try again later")

    def take_savings(self, namespace: NamespacePath) -> Savings:
        """Return the savings added since the last call and reset them."""
        pk = (
            select(namespaces.c.pk)
            .where(namespaces.c.path == build_namespace_key(namespace))
            .scalar_subquery()
        )
        # One statement reads and deletes: savings that are added in between would be lost otherwise.
        with self._database.write() as connection:
            taken = connection.execute(
                delete(adaptive_parameters)
                .where(adaptive_parameters.c.namespace_pk == pk, _IS_PENDING)
                .returning(adaptive_parameters.c.name, adaptive_parameters.c.value)
            ).all()
        return Savings(**{row.name.removeprefix(_PENDING_PREFIX): int(row.value) for row in taken})

    def list_snapshots(self, namespace: NamespacePath, limit: int) -> tuple[TuningSnapshot, ...]:
        """Return the newest snapshots, newest first."""
        page = self.list_snapshot_page(namespace, before=None, limit=limit)
        return tuple(stored.snapshot for stored in page)

    @retry_on_disconnect
    def list_snapshot_page(
        self, namespace: NamespacePath, *, before: int | None, limit: int
    ) -> tuple[StoredSnapshot, ...]:
        """Return snapshots with the store's own handles, newest first, before the handle ``before``."""
        columns = optimization_snapshots.c
        query = (
            select(columns.pk, columns.created_at, columns.body)
            .join(namespaces)
            .where(namespaces.c.path == build_namespace_key(namespace))
            .order_by(columns.pk.desc())
            .limit(limit)
        )
        if before is not None:
            query = query.where(columns.pk < before)
        with self._database.read() as connection:
            return tuple(StoredSnapshot(row.pk, _parse_snapshot(row)) for row in connection.execute(query))

    @retry_on_disconnect
    def acquire_lease(self, lease: str, holder: str, now: datetime, until: datetime) -> bool:
        """Acquire a lease, or renew it if it has the same holder.

        Args:
            lease: Name of the lease.
            holder: Id of the process or job.
            now: Current time; a lease that expired by then may be taken over.
            until: New expiry time.

        Returns:
            False if another holder has the lease.
        """
        name = escape(lease)
        # If two processes insert the lease at once, one of them gets ConcurrentWriteError and returns False.
        with suppress(ConcurrentWriteError), self._database.write() as connection:
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

    @retry_on_disconnect
    def release_lease(self, lease: str, holder: str) -> None:
        """Release a lease; does nothing if another holder has it."""
        with self._database.write() as connection:
            connection.execute(
                delete(leases).where(leases.c.name == escape(lease), leases.c.holder == holder)
            )

    @retry_on_disconnect
    def list_leases(self, start: str) -> Mapping[str, datetime]:
        """Return the leases whose names start with ``start``, including expired ones, with their expiry times."""
        stored = escape(start)
        query = select(leases.c.name, leases.c.expires_at).where(
            func.substr(leases.c.name, 1, len(stored)) == stored
        )
        with self._database.read() as connection:
            return {unescape(row.name): row.expires_at for row in connection.execute(query)}


def _is_lease_held(connection: Connection, lease: str, holder: str) -> bool:
    # FOR UPDATE: no other process can take over the lease before this transaction ends.
    row = connection.execute(select(leases.c.holder).where(leases.c.name == escape(lease)).with_for_update())
    return row.scalar() == holder


def _has_namespace(connection: Connection, path: str) -> bool:
    return connection.execute(select(namespaces.c.pk).where(namespaces.c.path == path)).first() is not None


def _insert_run(
    connection: Connection, namespace_pk: int, values: dict[str, float], snapshot: TuningSnapshot
) -> None:
    # Pending savings are kept: contexts may have added some during the run.
    connection.execute(
        delete(adaptive_parameters).where(adaptive_parameters.c.namespace_pk == namespace_pk, ~_IS_PENDING)
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
            namespace_pk=namespace_pk, created_at=snapshot.created_at, body=_serialize_snapshot(snapshot)
        )
    )


def _increment_value(connection: Connection, namespace_pk: int, name: str, by: float) -> None:
    row = adaptive_parameters.c
    increased = connection.execute(
        update(adaptive_parameters)
        .where(row.namespace_pk == namespace_pk, row.name == name)
        .values(value=row.value + by)
    )
    if not increased.rowcount:
        connection.execute(insert(adaptive_parameters).values(namespace_pk=namespace_pk, name=name, value=by))


def _prune_snapshots(connection: Connection, namespace_pk: int, keep: int) -> None:
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


def _build_parameters(values: dict[str, float], prefix: str) -> TuningParameters:
    return TuningParameters(
        compression_trigger=values[f"{prefix}compression_trigger"],
        full_message_window=int(values[f"{prefix}full_message_window"]),
        min_relevance=values[f"{prefix}min_relevance"],
        target_usage=values[f"{prefix}target_usage"],
    )


def _serialize_snapshot(snapshot: TuningSnapshot) -> str:
    fields: dict[str, Any] = asdict(snapshot)
    del fields["created_at"]
    return json.dumps(fields)


def _parse_snapshot(row: AnyRow) -> TuningSnapshot:
    fields: dict[str, Any] = json.loads(row.body)
    parameters = TuningParameters(**fields.pop("parameters"))
    return TuningSnapshot(created_at=row.created_at, parameters=parameters, **fields)
