"""The OpenAPI document matches the behavior of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from langmem_tiers import AgentAction, AgentMemory, MemoryEngine
from langmem_tiers.server import create_app
from tests.hypothesis_settings import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis.schemas import BaseSchema

load_all_checks()
pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("schema")]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def document() -> Iterator[BaseSchema]:
    with MemoryEngine(embedder=None) as engine:
        engine.session("a", "0").add("user", "My cat is called Tom.")
        engine.namespace("a").knowledge.store("domain", "cat", "Tom")
        with AgentMemory(engine=engine, namespace="a", task="t") as agent:
            agent.record_cycle("I look", AgentAction("look", {"at": "cat"}), "a cat")
        app = create_app(engine)
        yield schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "localhost"})


schema = schemathesis.pytest.from_fixture("document")


@schema.parametrize()
@settings(
    max_examples=examples(15).max_examples,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_valid_request_gets_a_documented_response(case: schemathesis.Case[Any]) -> None:
    if "namespace" in {parameter.name for parameter in case.operation.query}:
        case.query = {**(case.query or {}), "namespace": "a"}
    elif isinstance(case.body, dict):
        case.body = {**case.body, "namespace": "a"}
    case.call_and_validate(checks=CHECKS, headers={"Host": "localhost"})


def test_the_document_states_the_maximum_recall_limit(document: BaseSchema) -> None:
    shapes = document.raw_schema["components"]["schemas"]["RecallMemoriesRequest"]["properties"]["limit"][
        "anyOf"
    ]
    assert [schema["maximum"] for schema in shapes if schema["type"] == "integer"] == [100]


def test_the_document_names_no_other_host(document: BaseSchema) -> None:
    text = str(document.raw_schema)
    assert "http://" not in text
    assert "https://" not in text
    assert str(document.raw_schema["openapi"]).startswith("3.1")
