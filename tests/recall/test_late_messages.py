"""Messages committed late by a slow writer are inserted in order without reading others again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import psycopg
import pytest

from langmem_tiers import MemoryEngine, MessageDraft

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers import Namespace

COPIED = """
    INSERT INTO lmt_messages (
        session_pk, namespace_pk, id, position, role, content, created_at, token_count, token_counter,
        term_count, is_question, importance, speaker, terms
    )
    SELECT session_pk, namespace_pk, 'late', position, role, content, created_at, token_count, token_counter,
        term_count, is_question, importance, speaker, terms
    FROM lmt_messages WHERE id = 'about boats'"""


SAID_LATE = """
    INSERT INTO lmt_messages (
        session_pk, namespace_pk, id, position, role, content, created_at, token_count, token_counter,
        term_count, is_question, importance, speaker, terms
    )
    SELECT own.pk, own.namespace_pk, 'late ' || id, position + 1000000, role, content, lmt_messages.created_at,
        lmt_messages.token_count, token_counter, term_count, is_question, importance, speaker, terms
    FROM lmt_messages JOIN lmt_sessions AS of ON of.pk = session_pk CROSS JOIN lmt_sessions AS own
    WHERE of.name = %s AND own.name = %s ORDER BY lmt_messages.pk"""


def ranking(where: Namespace) -> list[tuple[str, float]]:
    return [(hit.entry.id, round(hit.score, 6)) for hit in where.recall("where is the red boat", limit=20)]


def test_cached_rows_stay_valid_when_a_late_message_is_committed(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    with MemoryEngine(url) as engine, psycopg.connect(url) as slow:
        where = engine.namespace("acme")
        where.session("s").add_many(
            MessageDraft("user", f"The house number {n} stands by the sea") for n in range(40)
        )
        where.session("s").add(MessageDraft("user", "The red boat lies in the harbour", id="about boats"))
        where.recall("where is the red boat")
        slow.execute(COPIED)  # has its key, and is not committed
        where.session("t").add(MessageDraft("user", "The red boat sails at noon", id="sails"))
        assert "late" not in dict(ranking(where))
        cached_index = engine._services.retriever._indexes["acme",]
        words, vectors = cached_index._lexical_cache, cached_index.vectors
        slow.commit()
        found = ranking(where)
        assert {"late", "about boats", "sails"} <= set(dict(found))
        assert cached_index._lexical_cache is words
        assert cached_index.vectors is vectors
        with MemoryEngine(url) as fresh:
            assert ranking(fresh.namespace("acme")) == found


WORDS = "boat harbour storm sail anchor rope garden tulip seed flower spade bench copper wire lamp".split()
TALK = {
    f"talk {topic}": [
        " ".join(random.Random(f"{topic} {n}").sample(WORDS[6 * topic : 6 * topic + 9], 6)) for n in range(9)
    ]
    for topic in (0, 1)
}
SMALL = {"small": ["hi"] * 16}


@pytest.mark.parametrize(("first", "late"), [(TALK, {"small": ["hi"] * 8}), (SMALL, TALK)])
def test_the_trust_in_an_embedder_does_not_depend_on_commit_order(
    new_postgres_database: Callable[[], str], first: dict[str, list[str]], late: dict[str, list[str]]
) -> None:
    # The trial is made on the first messages: which those are, is another matter once late ones have come.
    url = new_postgres_database()
    with MemoryEngine(url) as engine, MemoryEngine(url) as writer, psycopg.connect(url) as slow:
        for name, texts in late.items():
            writer.session("model", name).add_many(MessageDraft("user", text) for text in texts)
            writer.session("acme", f"late {name}")
            slow.execute(SAID_LATE, (name, f"late {name}"))
        for name, texts in first.items():
            writer.session("acme", name).add_many(MessageDraft("user", text) for text in texts)
        where = engine.namespace("acme")
        where.recall("boat garden storm")
        slow.commit()
        where.recall("boat garden storm")
        with MemoryEngine(url) as fresh:
            fresh.namespace("acme").recall("boat garden storm")
            kept, anew = (
                instance.services.retriever._indexes["acme",].vectors for instance in (engine, fresh)
            )
            assert kept is not None
            assert anew is not None
            assert kept.trust == anew.trust
