"""SQL storage of knowledge."""

from __future__ import annotations

import json
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
from langmem_tiers.knowledge.models import Knowledge, KnowledgeHit, KnowledgeUpdate, PastKnowledge
from langmem_tiers.sessions.repository import get_or_create_namespace
from langmem_tiers.storage.column_types import pack_json, to_storable_text, unpack_json
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.retry_write import retry_on_conflict
from langmem_tiers.storage.schema import KNOWLEDGE_COLUMNS, knowledge, knowledge_history, namespaces
from langmem_tiers.storage.search import build_knowledge_columns, postgres, sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Connection, Select

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.storage.database import Database
    from langmem_tiers.storage.search.postings import Postings


_SATURATION, _LENGTH_WEIGHT = 1.2, 0.75  # the usual BM25 parameters k1 and b
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
    # Adding 0 keeps the planner from using the index on namespace_pk, so that it looks up the few rows by their
    # keys instead of scanning the whole namespace.
    query = query.where(knowledge.c.namespace_pk + literal_column("0") == tenant)
    if is_sqlite:
        return query.where(text("lmt_knowledge.pk IN (SELECT value FROM json_each(:keys))"))
    return query.where(text("lmt_knowledge.pk = ANY(CAST(:keys AS bigint[]))"))


class KnowledgeFinder:
    """Searches knowledge with a few small statements, and with a single one if the namespace is empty.

    Args:
        database: Database to search.
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
        """Return rows that contain any of the terms, with their scores, best first.

        Rows with equal scores are sorted by confidence, highest first.
        """
        path, category_key = build_namespace_key(namespace), None if category is None else escape(category)
        with self._database.read_raw() as connection:
            tenant = self._select_tenant.run(connection, {"path": path})
            if tenant is None or not tenant[1] or not terms:
                return []
            terms_of_tenant = [f"{tenant[0]}_{term}" for term in dict.fromkeys(terms)]
            postings = self._search.find_postings(connection, terms_of_tenant, "knowledge")
            key_parameter = self._to_parameter(set(postings.keys.tolist()))
            measures = self._select_measures.fetch_all(
                connection, {"keys": key_parameter, "path": path, "category": category_key}
            )
            if not measures:
                return []
            scores = _find_best(postings, terms_of_tenant, tenant[1], measures, limit)
            # The path is checked again: if a key was reused meanwhile, no row of another tenant is returned.
            rows = self._select_rows.fetch_named(
                connection, {"keys": self._to_parameter(scores), "path": path}
            )
        rows.sort(key=lambda row: (-scores[row.pk], -row.confidence, row.key, row.category))
        return [(row, scores[row.pk]) for row in rows[:limit]]

    def _to_parameter(self, keys: set[int] | dict[int, float]) -> str | list[int]:
        return str(list(keys)) if self._database.is_sqlite else list(keys)


def _find_best(
    postings: Postings, terms: Sequence[str], total: int, measures: Sequence[Sequence[Any]], limit: int
) -> dict[int, float]:
    # Return the scores of the best rows. Rows that tie with the last of them are included: the caller breaks ties
    # by key and category.
    import numpy as np  # noqa: PLC0415 - imported only when something is recalled

    keys, lengths, confidence = (np.array(column) for column in zip(*measures, strict=True))
    scores = _compute_scores(postings, terms, total, keys, lengths.astype(np.float64))
    order = np.lexsort((-confidence, -scores))
    last = order[min(limit, len(order)) - 1]
    is_best = (scores > scores[last]) | ((scores == scores[last]) & (confidence >= confidence[last]))
    return dict(zip(keys[is_best].tolist(), scores[is_best].tolist(), strict=True))


def _compute_scores(
    postings: Postings,
    terms: Sequence[str],
    total: int,
    keys: NDArray[np.int64],
    lengths: NDArray[np.float64],
) -> NDArray[np.float64]:
    import numpy as np  # noqa: PLC0415 - imported only when something is recalled

    # Index into ``keys`` of each posting. Keys outside the range get the last index; is_scored filters those.
    at = np.minimum(np.searchsorted(keys, postings.keys), len(keys) - 1)
    is_scored = keys[at] == postings.keys  # False for rows of another category
    norms = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * lengths / lengths.mean())
    scores = np.zeros(len(keys))
    term_numbers = {term: number for number, term in enumerate(postings.terms)}
    # In the order of the query: floating-point sums then agree on every database.
    for term in terms:
        if (term_number := term_numbers.get(term)) is None:
            continue
        is_term = postings.term_numbers == term_number
        # The inverse document frequency of BM25, over all rows of the namespace.
        rarity = np.log1p((total - is_term.sum() + 0.5) / (is_term.sum() + 0.5))
        is_term &= is_scored
        counts, where = postings.counts[is_term].astype(np.float64), at[is_term]
        scores[where] += rarity * counts * (_SATURATION + 1) / (counts + norms[where])
    return scores


_MAX_NAMES_PER_QUERY = 400  # well below every database's limit on parameters

# Every context reads the first page of user preferences, so this statement is compiled only once.
_SELECT_FIRST_PAGE = (
    select(*KNOWLEDGE_COLUMNS)
    .join(namespaces)
    .where(namespaces.c.path == bindparam("path"), knowledge.c.category == bindparam("of"))
    .order_by(knowledge.c.category, knowledge.c.key)
    .limit(bindparam("most"))
)


class KnowledgeRepository:
    """Keys and values across sessions, with one current value per category and key.

    Args:
        database: Database to use.
        terms_of: Returns the search terms of a text.
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
        """Replace the value under each category and key with the result of ``decide``.

        Runs in one transaction; each name may occur once. ``decide`` may be called again after a concurrent write.
        """

        def write() -> tuple[KnowledgeUpdate, ...]:
            # Two processes that insert the same key at once: one fails, and its retry finds the row.
            with self._database.write() as connection:
                namespace_pk = _find_namespace(connection, namespace)
                if namespace_pk is None:
                    if all(decide(None) == KnowledgeUpdate(None) for _ in names):
                        # Nothing to store, so no namespace is created.
                        return (KnowledgeUpdate(None),) * len(names)
                    namespace_pk = get_or_create_namespace(connection, build_namespace_key(namespace), now)
                rows = _lock_rows(connection, namespace_pk, names)
                updates = {
                    # dict.fromkeys: a repeated name is decided once, or its second insert would fail.
                    name: self._replace(connection, namespace_pk, rows.get(name), decide)
                    for name in dict.fromkeys(names)
                }
                return tuple(updates[name] for name in names)

        return retry_on_conflict(write, f"concurrent changes to the same {len(names)} keys: try again later")

    def get(self, namespace: NamespacePath, category: str, key: str) -> Knowledge | None:
        """Return the current value under a key, or None."""
        query = _build_query(namespace, category).where(knowledge.c.key == escape(key))
        found = self._read(query)
        return found[0] if found else None

    @retry_on_disconnect
    def list_page(
        self, namespace: NamespacePath, category: str | None, *, after: tuple[str, str] | None, limit: int
    ) -> tuple[Knowledge, ...]:
        """Return current values ordered by category and key, after the category and key ``after``."""
        if category is not None and after is None:
            values = {"path": build_namespace_key(namespace), "of": escape(category), "most": limit}
            with self._database.read_raw() as connection:
                return tuple(_to_knowledge(row) for row in self._first_page.fetch_named(connection, values))
        query = _build_query(namespace, category).order_by(knowledge.c.category, knowledge.c.key).limit(limit)
        if after is not None:
            after_category, after_key = escape(after[0]), escape(after[1])
            query = query.where(
                or_(
                    knowledge.c.category > after_category,
                    and_(knowledge.c.category == after_category, knowledge.c.key > after_key),
                )
            )
        return self._read(query)

    def search(
        self, namespace: NamespacePath, terms: Sequence[str], *, category: str | None, limit: int
    ) -> tuple[KnowledgeHit, ...]:
        """Return values that contain any of the terms in the key or the value, best first.

        Data of other namespaces affects neither the results nor their order. Ties are broken by confidence, then
        by key.

        Args:
            namespace: Namespace to search.
            terms: Terms as produced by the tokenizer that also indexed the keys and values.
            category: Only this category. Default: all.
            limit: Maximum number of results.
        """
        found = self._finder.find(namespace, terms, category, limit)
        return tuple(KnowledgeHit(knowledge=_to_knowledge(row), score=score) for row, score in found)

    def list_stale(
        self, namespace: NamespacePath, *, before: datetime, below: float, limit: int
    ) -> tuple[Knowledge, ...]:
        """Return knowledge that was not used since ``before`` or whose confidence is below ``below``."""
        query = _build_query(namespace, None).where(
            or_(knowledge.c.fresh_at <= before, knowledge.c.confidence < below)
        )
        return self._read(query.order_by(knowledge.c.fresh_at, knowledge.c.pk).limit(limit))

    @retry_on_disconnect
    def list_history(self, namespace: NamespacePath, category: str, key: str) -> tuple[PastKnowledge, ...]:
        """Return the former values of a key, oldest first."""
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
        """Return former values that were valid at ``moment``, ordered by category and key."""
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
        new_state = decide(None if row is None else _to_knowledge(row))
        if new_state.past is not None:
            connection.execute(insert(knowledge_history), _to_past_row(new_state.past, namespace_pk))
        if new_state.knowledge is None:
            if row is not None:
                connection.execute(delete(knowledge).where(knowledge.c.pk == row.pk))
            return new_state
        values = _to_row(new_state.knowledge, namespace_pk)
        if row is None:
            connection.execute(
                insert(knowledge), values | self._build_index_columns(new_state.knowledge, namespace_pk)
            )
            return new_state
        # Update only the columns that changed: the search index is rebuilt only for a new text.
        changed = {name: value for name, value in values.items() if getattr(row, name) != value}
        if "value" in changed:
            changed |= self._build_index_columns(new_state.knowledge, namespace_pk)
        if changed:
            connection.execute(update(knowledge).where(knowledge.c.pk == row.pk), changed)
        return new_state

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
    escaped_names = sorted({(escape(category), escape(key)) for category, key in names})
    rows: dict[tuple[str, str], AnyRow] = {}
    for start in range(0, len(escaped_names), _MAX_NAMES_PER_QUERY):
        query = (
            select(*KNOWLEDGE_COLUMNS)
            .where(
                knowledge.c.namespace_pk == namespace_pk,
                tuple_(knowledge.c.category, knowledge.c.key).in_(
                    escaped_names[start : start + _MAX_NAMES_PER_QUERY]
                ),
            )
            # One lock order for all writers avoids deadlocks.
            .order_by(knowledge.c.category, knowledge.c.key)
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
    # The "value" column is readable text. "exact" holds the original if the database cannot store a character.
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
