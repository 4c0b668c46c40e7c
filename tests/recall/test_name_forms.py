"""Names without spaces have shorter and friendlier forms."""

from __future__ import annotations

import pytest

from langmem_tiers.recall.query import build_name_forms


@pytest.mark.parametrize(
    ("name", "forms"),
    [
        ("李小明", {"小明", "明明", "阿明", "小李", "老李"}),
        ("王芳", {"芳芳", "小芳", "阿芳", "小王", "老王"}),
        ("欧阳雪", {"欧阳", "雪雪", "小雪", "阿雪"}),
        ("田中太郎", {"田中", "太郎", "郎郎", "小郎", "阿郎"}),
        ("佐藤さくら", {"佐藤", "さくら"}),
        ("佐藤さん", {"佐藤"}),
        ("김민수", {"민수"}),
    ],
)
def test_a_name_has_forms_without_the_surname_and_nicknames(name: str, forms: set[str]) -> None:
    assert set(build_name_forms(name)) == forms


@pytest.mark.parametrize(
    "name", ["", "芳", "老周", "阿杰", "婷婷", "欧阳", "さくら", "マイク", "김준", "maria", "ไทย"]
)
def test_a_short_name_or_a_common_word_has_no_other_forms(name: str) -> None:
    assert build_name_forms(name) == ()


@pytest.mark.parametrize("name", ["王芳", "李小明", "欧阳雪", "田中太郎", "김민수"])
def test_no_form_is_a_single_character_or_longer_than_the_name(name: str) -> None:
    assert all(2 <= len(form) <= len(name) for form in build_name_forms(name))
