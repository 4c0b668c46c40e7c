"""Knowledge across sessions on SQL."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    update,
)

from langmem_tiers.common.namespaces import build_namespace_key, escape, unescape
from langmem_tiers.errors import StorageBusyError
from langmem_tiers.knowledge.models import Knowledge, KnowledgeHit, KnowledgeUpdate, PastKnowledge
from langmem_tiers.sessions.repository import get_or_create_namespace
from langmem_tiers.storage.column_types import pack_json, to_storable_text, unpack_json
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.retry_read import retry_on_disconnect
from langmem_tiers.storage.schema import KNOWLEDGE_COLUMNS, knowledge, knowledge_history, namespaces
from langmem_tiers.storage.search import build_knowledge_columns, postgres, sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Connection, Select

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.storage.database import Database
    from langmem_tiers.storage.search.postings import Postings


_SATURATION, _LENGTH_WEIGHT = 1.2, 0.75  # as BM25 has them
_COUNT_KNOWLEDGE = (
    select(func.count()).select_from(knowledge).where(knowledge.c.namespace_pk == namespaces.c.pk)
)
_SELECT_TENANT = select(namespaces.c.pk, _COUNT_KNOWLEDGE.scalar_subquery().label("own")).where(
    namespaces.c.path == bindparam("path")
)
_SELECT_MEASURES = (
    select(knowledge.c.pk, knowledge.c.term_count, knowledge.c.confidence)
    .where(text("(CAST(:category AS text) IS NULL OR category = CAST(:category AS text))"))
    .order_by(knowledge.c.pk)
)


def _filter_by_keys(query: Select[*tuple[Any, ...]], is_sqlite: bool) -> Select[*tuple[Any, ...]]:  # noqa: FBT001
    tenant = select(namespaces.c.pk).where(namespaces.c.path == bindparam("path")).scalar_subquery()
    # A sum has no index: so the rows are found by their keys, not among all of the namespace.
    query = query.where(knowledge.c.namespace_pk + literal_column("0") == tenant)
    if is_sqlite:
        return query.where(text("lmt_knowledge.pk IN (SELECT value FROM json_each(:keys))"))
    return query.where(text("lmt_knowledge.pk = ANY(CAST(:keys AS bigint[]))"))


class KnowledgeFinder:
    """A few small statements, and only one where nothing is known.

    Args:
        database: Where.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._search = sqlite if database.is_sqlite else postgres
        self._select_tenant = DriverStatement(_SELECT_TENANT, database.dialect)
        self._select_measures = DriverStatement(
            _filter_by_keys(_SELECT_MEASURES, database.is_sqlite), database.dialect
        )
        self._select_rows = DriverStatement(
            _filter_by_keys(select(*KNOWLEDGE_COLUMNS), database.is_sqlite), database.dialect
        )

    @retry_on_disconnect
    def find(
        self, namespace: NamespacePath, terms: Sequence[str], category: str | None, limit: int
    ) -> list[tuple[AnyRow, float]]:
        """What holds any of the terms, with a score, best first; the surer first where they score alike."""
        path, of = build_namespace_key(namespace), None if category is None else escape(category)
        with self._database.read_raw() as connection:
            tenant = self._select_tenant.run(connection, {"path": path})
            if tenant is None or not tenant[1] or not terms:
                return []
            own = [f"{tenant[0]}_{term}" for term in dict.fromkeys(terms)]
            places = self._search.find_postings(connection, own, "knowledge")
            found = self._to_parameter(set(places.keys.tolist()))
            measures = self._select_measures.fetch_all(
                connection, {"keys": found, "path": path, "category": of}
            )
            if not measures:
                return []
            scores = _find_best(places, own, tenant[1], measures, limit)
            # Whatever became of the keys meanwhile: by the path, nothing of another tenant is read.
            rows = self._select_rows.fetch_named(
                connection, {"keys": self._to_parameter(scores), "path": path}
            )
        rows.sort(key=lambda row: (-scores[row.pk], -row.confidence, row.key, row.category))
        return [(row, scores[row.pk]) for row in rows[:limit]]

    def _to_parameter(self, keys: set[int] | dict[int, float]) -> str | list[int]:
        return str(list(keys)) if self._database.is_sqlite else list(keys)


def _find_best(
    places: Postings, terms: Sequence[str], total: int, measures: Sequence[Sequence[Any]], limit: int
) -> dict[int, float]:
    # The scores of the best, and of all that are no worse than the last of them.
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    keys, lengths, confidence = (np.array(column) for column in zip(*measures, strict=True))
    scores = _compute_scores(places, terms, total, keys, lengths.astype(np.float64))
    order = np.lexsort((-confidence, -scores))
    last = order[min(limit, len(order)) - 1]
    is_best = (scores > scores[last]) | ((scores == scores[last]) & (confidence >= confidence[last]))
    return dict(zip(keys[is_best].tolist(), scores[is_best].tolist(), strict=True))


def _compute_scores(
    places: Postings, terms: Sequence[str], total: int, keys: NDArray[np.int64], lengths: NDArray[np.float64]
) -> NDArray[np.float64]:
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    at = np.minimum(np.searchsorted(keys, places.keys), len(keys) - 1)
    is_there = keys[at] == places.keys  # and of the category
    norms = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * lengths / lengths.mean())
    scores = np.zeros(len(keys))
    numbers = {term: number for number, term in enumerate(places.terms)}
    for term in terms:  # in the order of the query: the sums are the same on every database
        if (number := numbers.get(term)) is None:
            continue
        is_of = places.term_numbers == number
        rarity = np.log1p((total - is_of.sum() + 0.5) / (is_of.sum() + 0.5))
        is_of &= is_there
        counts, where = places.counts[is_of].astype(np.float64), at[is_of]
        scores[where] += rarity * counts * (_SATURATION + 1) / (counts + norms[where])
    return scores


_MAX_ATTEMPTS = 20  # far more than two racing writers need
_MAX_NAMES_PER_QUERY = 400  # well below every database's limit on parameters

_SELECT_FIRST_PAGE = (  # what every context asks for: what the user prefers
    select(*KNOWLEDGE_COLUMNS)
    .join(namespaces)
    .where(namespaces.c.path == bindparam("path"), knowledge.c.category == bindparam("of"))
    .order_by(knowledge.c.category, knowledge.c.key)
    .limit(bindparam("most"))
)


class SqlKnowledgeStore:
    """Serves the ``KnowledgeStore`` port.

    Args:
        database: Where.
        terms_of: The terms of a text, by which it is found.
    """

    def __init__(self, database: Database, terms_of: Callable[[str], Sequence[str]]) -> None:
        self._database = database
        self._terms_of = terms_of
        self._finder = KnowledgeFinder(database)
        self._first_page = DriverStatement(_SELECT_FIRST_PAGE, database.dialect)

    def update(
        self,
        namespace: NamespacePath,
        names: Sequence[tuple[str, str]],
        decide: Callable[[Knowledge | None], KnowledgeUpdate],
        now: datetime,
    ) -> tuple[KnowledgeUpdate, ...]:
        """Replace what is known under each category and key by what ``decide`` makes of it."""
        for _ in range(_MAX_ATTEMPTS):
            # Two who store the same new key at once: one of them looks again and finds it.
            with suppress(ConcurrentWriteError), self._database.write() as connection:
                namespace_pk = _find_namespace(connection, namespace)
                if namespace_pk is None:
                    if all(decide(None) == KnowledgeUpdate(None) for _ in names):
                        return (KnowledgeUpdate(None),) * len(
                            names
                        )  # nothing to keep: no namespace is made for it
                    namespace_pk = get_or_create_namespace(connection, build_namespace_key(namespace), now)
                rows = _lock_rows(connection, namespace_pk, names)
                kept = {
                    name: self._replace(connection, namespace_pk, rows.get(name), decide)
                    for name in dict.fromkeys(names)
                }
                return tuple(kept[name] for name in names)
        raise StorageBusyError(f"others store the same {len(names)} keys all the time: try again later")

    def get(self, namespace: NamespacePath, category: str, key: str) -> Knowledge | None:
        """What is known under a key."""
        query = _build_query(namespace, category).where(knowledge.c.key == escape(key))
        found = self._read(query)
        return found[0] if found else None

    @retry_on_disconnect
    def list_page(
        self, namespace: NamespacePath, category: str | None, *, after: tuple[str, str] | None, limit: int
    ) -> tuple[Knowledge, ...]:
        """What is known, by category and key."""
        if category is not None and after is None:
            names = {"path": build_namespace_key(namespace), "of": escape(category), "most": limit}
            with self._database.read_raw() as connection:
                return tuple(_to_knowledge(row) for row in self._first_page.fetch_named(connection, names))
        query = _build_query(namespace, category).order_by(knowledge.c.category, knowledge.c.key).limit(limit)
        if after is not None:
            of, key = escape(after[0]), escape(after[1])
            query = query.where(
                or_(knowledge.c.category > of, and_(knowledge.c.category == of, knowledge.c.key > key))
            )
        return self._read(query)

    def search(
        self, namespace: NamespacePath, terms: Sequence[str], *, category: str | None, limit: int
    ) -> tuple[KnowledgeHit, ...]:
        """What holds any of the terms in its key or value, best first."""
        found = self._finder.find(namespace, terms, category, limit)
        return tuple(KnowledgeHit(knowledge=_to_knowledge(row), score=score) for row, score in found)

    def list_stale(
        self, namespace: NamespacePath, *, before: datetime, below: float, limit: int
    ) -> tuple[Knowledge, ...]:
        """What was not used since then, or has a confidence below that."""
        query = _build_query(namespace, None).where(
            or_(knowledge.c.fresh_at <= before, knowledge.c.confidence < below)
        )
        return self._read(query.order_by(knowledge.c.fresh_at, knowledge.c.pk).limit(limit))

    @retry_on_disconnect
    def list_history(self, namespace: NamespacePath, category: str, key: str) -> tuple[PastKnowledge, ...]:
        """Former values, oldest first."""
        query = (
            select(knowledge_history)
            .join(namespaces)
            .where(
                namespaces.c.path == build_namespace_key(namespace),
                knowledge_history.c.category == escape(category),
                knowledge_history.c.key == escape(key),
            )
            .order_by(knowledge_history.c.pk)
        )
        with self._database.read() as connection:
            return tuple(_to_past(row) for row in connection.execute(query))

    @retry_on_disconnect
    def list_past_at(
        self, namespace: NamespacePath, moment: datetime, *, limit: int
    ) -> tuple[PastKnowledge, ...]:
        """Former values that held at a time, by category and key."""
        query = (
            select(knowledge_history)
            .join(namespaces)
            .where(
                namespaces.c.path == build_namespace_key(namespace),
                knowledge_history.c.valid_from <= moment,
                knowledge_history.c.valid_until > moment,
            )
            .order_by(knowledge_history.c.category, knowledge_history.c.key, knowledge_history.c.pk)
            .limit(limit)
        )
        with self._database.read() as connection:
            return tuple(_to_past(row) for row in connection.execute(query))

    def _replace(
        self,
        connection: Connection,
        namespace_pk: int,
        row: AnyRow | None,
        decide: Callable[[Knowledge | None], KnowledgeUpdate],
    ) -> KnowledgeUpdate:
        kept = decide(None if row is None else _to_knowledge(row))
        if kept.past is not None:
            connection.execute(insert(knowledge_history), _to_past_row(kept.past, namespace_pk))
        if kept.knowledge is None:
            if row is not None:
                connection.execute(delete(knowledge).where(knowledge.c.pk == row.pk))
            return kept
        values = _to_row(kept.knowledge, namespace_pk)
        if row is None:
            connection.execute(
                insert(knowledge), values | self._build_index_columns(kept.knowledge, namespace_pk)
            )
            return kept
        # Only what changed: an untouched text need not be indexed again.
        changed = {name: value for name, value in values.items() if getattr(row, name) != value}
        if "value" in changed:
            changed |= self._build_index_columns(kept.knowledge, namespace_pk)
        if changed:
            connection.execute(update(knowledge).where(knowledge.c.pk == row.pk), changed)
        return kept

    def _build_index_columns(self, item: Knowledge, namespace_pk: int) -> dict[str, Any]:
        terms = self._terms_of(f"{item.key} {item.value}")
        return build_knowledge_columns(terms, namespace_pk, self._database.is_sqlite)

    @retry_on_disconnect
    def _read(self, query: Select[*tuple[Any, ...]]) -> tuple[Knowledge, ...]:
        with self._database.read() as connection:
            return tuple(_to_knowledge(row) for row in connection.execute(query))


def _lock_rows(
    connection: Connection, namespace_pk: int, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], AnyRow]:
    stored = sorted({(escape(category), escape(key)) for category, key in names})
    rows: dict[tuple[str, str], AnyRow] = {}
    for start in range(0, len(stored), _MAX_NAMES_PER_QUERY):
        query = (
            select(*KNOWLEDGE_COLUMNS)
            .where(
                knowledge.c.namespace_pk == namespace_pk,
                tuple_(knowledge.c.category, knowledge.c.key).in_(
                    stored[start : start + _MAX_NAMES_PER_QUERY]
                ),
            )
            .order_by(knowledge.c.category, knowledge.c.key)  # everybody locks in the same order
            .with_for_update()
        )
        rows.update(((unescape(row.category), unescape(row.key)), row) for row in connection.execute(query))
    return rows


def _find_namespace(connection: Connection, namespace: NamespacePath) -> int | None:
    query = select(namespaces.c.pk).where(namespaces.c.path == build_namespace_key(namespace))
    return connection.execute(query).scalar()


def _build_query(namespace: NamespacePath, category: str | None) -> Select[*tuple[Any, ...]]:
    query = (
        select(*KNOWLEDGE_COLUMNS).join(namespaces).where(namespaces.c.path == build_namespace_key(namespace))
    )
    return query if category is None else query.where(knowledge.c.category == escape(category))


def _to_text_columns(value: str, source: str | None = None) -> dict[str, str | None]:
    # Readable for people, and exactly beside it where a database refuses a character.
    readable = to_storable_text(value)
    is_exact = readable is value and (source is None or to_storable_text(source) is source)
    exact = None if is_exact else pack_json(json.dumps([value, source], ensure_ascii=False))
    return {"value": readable, "exact": exact}


def _read_exact_texts(row: AnyRow, source: str | None) -> tuple[str, str | None]:
    if row.exact is None:
        return row.value, source
    value, source = json.loads(unpack_json(row.exact))
    return value, source


def _to_row(item: Knowledge, namespace_pk: int) -> dict[str, Any]:
    return {
        "namespace_pk": namespace_pk,
        "category": escape(item.category),
        "key": escape(item.key),
        **_to_text_columns(item.value, item.source),
        "confidence": item.confidence,
        "created_at": item.created_at,
        "updated_at": item.updated_at,
        "fresh_at": item.fresh_at,
        "last_used_at": item.last_used_at,
        "use_count": item.use_count,
        "store_count": item.store_count,
        "source": None if item.source is None else to_storable_text(item.source),
    }


def _to_knowledge(row: AnyRow) -> Knowledge:
    value, source = _read_exact_texts(row, row.source)
    return Knowledge(
        category=unescape(row.category),
        key=unescape(row.key),
        value=value,
        confidence=row.confidence,
        created_at=row.created_at,
        updated_at=row.updated_at,
        fresh_at=row.fresh_at,
        last_used_at=row.last_used_at,
        use_count=row.use_count,
        store_count=row.store_count,
        source=source,
    )


def _to_past_row(past: PastKnowledge, namespace_pk: int) -> dict[str, Any]:
    return {
        "namespace_pk": namespace_pk,
        "category": escape(past.category),
        "key": escape(past.key),
        **_to_text_columns(past.value, past.source),
        "confidence": past.confidence,
        "valid_from": past.valid_from,
        "valid_until": past.valid_until,
        "reason": past.reason,
        "source": None if past.source is None else to_storable_text(past.source),
    }


def _to_past(row: AnyRow) -> PastKnowledge:
    value, source = _read_exact_texts(row, row.source)
    return PastKnowledge(
        category=unescape(row.category),
        key=unescape(row.key),
        value=value,
        confidence=row.confidence,
        valid_from=row.valid_from,
        valid_until=row.valid_until,
        reason=row.reason,
        source=source,
    )
