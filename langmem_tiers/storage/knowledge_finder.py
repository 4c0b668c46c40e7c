"""Finds what is known by its terms, ranked by what the tenant itself holds.

The terms begin with the namespace's key, so finding them costs what the tenant's own rows cost,
and how rare they are is counted in the namespace alone (BM25).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, func, literal_column, select, text

from langmem_tiers.core.names import escape, namespace_key
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.repeatable import repeatable
from langmem_tiers.storage.schema import KNOWN, knowledge, namespaces
from langmem_tiers.storage.search import postgres, sqlite

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Select

    from langmem_tiers.core.indexes import Postings
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.storage.database import Database
    from langmem_tiers.storage.rows import AnyRow

_SATURATION, _BY_LENGTH = 1.2, 0.75  # as BM25 has them
_OWN = select(func.count()).select_from(knowledge).where(knowledge.c.namespace_pk == namespaces.c.pk)
_TENANT = select(namespaces.c.pk, _OWN.scalar_subquery().label("own")).where(
    namespaces.c.path == bindparam("path")
)
_MEASURES = (
    select(knowledge.c.pk, knowledge.c.term_count, knowledge.c.confidence)
    .where(text("(CAST(:category AS text) IS NULL OR category = CAST(:category AS text))"))
    .order_by(knowledge.c.pk)
)


def _among(query: Select[*tuple[Any, ...]], is_sqlite: bool) -> Select[*tuple[Any, ...]]:  # noqa: FBT001
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
        self._tenant = DriverStatement(_TENANT, database.dialect)
        self._measures = DriverStatement(_among(_MEASURES, database.is_sqlite), database.dialect)
        self._rows = DriverStatement(_among(select(*KNOWN), database.is_sqlite), database.dialect)

    @repeatable
    def find(
        self, namespace: NamespacePath, terms: Sequence[str], category: str | None, limit: int
    ) -> list[tuple[AnyRow, float]]:
        """What holds any of the terms, with a score, best first; the surer first where they score alike."""
        path, of = namespace_key(namespace), None if category is None else escape(category)
        with self._database.read_raw() as connection:
            tenant = self._tenant.run(connection, {"path": path})
            if tenant is None or not tenant[1] or not terms:
                return []
            own = [f"{tenant[0]}_{term}" for term in dict.fromkeys(terms)]
            places = self._search.postings(connection, own, "knowledge")
            found = self._keys(set(places.keys.tolist()))
            measures = self._measures.all(connection, {"keys": found, "path": path, "category": of})
            if not measures:
                return []
            scores = _best(places, own, tenant[1], measures, limit)
            # Whatever became of the keys meanwhile: by the path, nothing of another tenant is read.
            rows = self._rows.named(connection, {"keys": self._keys(scores), "path": path})
        rows.sort(key=lambda row: (-scores[row.pk], -row.confidence, row.key, row.category))
        return [(row, scores[row.pk]) for row in rows[:limit]]

    def _keys(self, keys: set[int] | dict[int, float]) -> str | list[int]:
        return str(list(keys)) if self._database.is_sqlite else list(keys)


def _best(
    places: Postings, terms: Sequence[str], total: int, measures: Sequence[Sequence[Any]], limit: int
) -> dict[int, float]:
    # The scores of the best, and of all that are no worse than the last of them.
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    keys, lengths, confidence = (np.array(column) for column in zip(*measures, strict=True))
    scores = _scores(places, terms, total, keys, lengths.astype(np.float64))
    order = np.lexsort((-confidence, -scores))
    last = order[min(limit, len(order)) - 1]
    is_best = (scores > scores[last]) | ((scores == scores[last]) & (confidence >= confidence[last]))
    return dict(zip(keys[is_best].tolist(), scores[is_best].tolist(), strict=True))


def _scores(
    places: Postings, terms: Sequence[str], total: int, keys: NDArray[np.int64], lengths: NDArray[np.float64]
) -> NDArray[np.float64]:
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    at = np.minimum(np.searchsorted(keys, places.keys), len(keys) - 1)
    is_there = keys[at] == places.keys  # and of the category
    norms = _SATURATION * (1 - _BY_LENGTH + _BY_LENGTH * lengths / lengths.mean())
    scores = np.zeros(len(keys))
    numbers = {term: number for number, term in enumerate(places.terms)}
    for term in terms:  # in the order of the query: the sums are the same on every database
        if (number := numbers.get(term)) is None:
            continue
        is_of = places.of == number
        rarity = np.log1p((total - is_of.sum() + 0.5) / (is_of.sum() + 0.5))
        is_of &= is_there
        counts, where = places.counts[is_of].astype(np.float64), at[is_of]
        scores[where] += rarity * counts * (_SATURATION + 1) / (counts + norms[where])
    return scores
