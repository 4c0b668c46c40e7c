"""Child process that writes batches to a store until it is killed and records the acknowledged ones."""

from __future__ import annotations

import os

from langgraph.store.base import PutOp

from langmem_tiers_langchain import TieredStore
from tests.contract.langgraph_store import INDEX

BATCH = 5


def write_until_killed(url: str, tenant: str, name: str, acknowledged: str) -> None:
    """Put batches over two namespaces, each value with a text and a vector."""
    notes = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with TieredStore.from_conn_string(url, index=INDEX) as store:
        number = 0
        while True:
            batch = f"{name}-{number}"
            store.batch(
                [
                    PutOp((tenant, str(n % 2)), f"{batch}-{n}", {"text": f"batch {batch}", "of": batch})
                    for n in range(BATCH)
                ]
            )
            os.write(notes, f"{batch}\n".encode())
            number += 1


def put_one(url: str, tenant: str, key: str, text: str | None) -> None:
    """Put or delete one item."""
    with TieredStore.from_conn_string(url, index=INDEX) as store:
        store.batch([PutOp((tenant,), key, None if text is None else {"text": text})])
