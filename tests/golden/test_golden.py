"""The public surface and the results of recall are those of the golden files."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.golden.snapshots import CONTEXTS, RECALLS, SNAPSHOTS, differences, load


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_the_result_equals_its_golden_file(name: str) -> None:
    result = json.loads(json.dumps(SNAPSHOTS[name]()))
    found = list(itertools.islice(differences(load(name), result), 20))
    assert not found, f"If this is intended: python -m tests.golden {name}"


def test_the_golden_files_contain_200_recalls_and_50_contexts_with_hits() -> None:
    recalls, contexts = load("recalls"), load("contexts")
    assert (len(recalls), len(contexts)) == (RECALLS, CONTEXTS)
    assert sum(bool(recall["hits"]) for recall in recalls) > 0.9 * RECALLS
    assert sum(bool(context["recalled"]) for context in contexts) > 0.9 * CONTEXTS


@pytest.mark.parametrize(
    ("expected", "actual", "places"),
    [
        ({"a": [1, 2.0]}, {"a": [1, 2.000001]}, []),
        ({"a": [1, 2.0]}, {"a": [1, 2.1]}, ["/a/1: 2.0 in the file, 2.1 in the result"]),
        ({"a": 1}, {"b": 1}, ["/a: only in the file", "/b: only in the result"]),
        ([1], [1, 2], [": 1 elements in the file, 2 in the result"]),
        ({"a": "x"}, {"a": None}, ["/a: 'x' in the file, None in the result"]),
    ],
)
def test_each_difference_names_its_path(expected: object, actual: object, places: list[str]) -> None:
    assert list(differences(expected, actual)) == places
