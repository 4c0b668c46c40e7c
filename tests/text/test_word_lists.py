from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import langmem_tiers
from langmem_tiers.text.word_lists import load_groups, load_lines, load_words

PACKAGE = Path(langmem_tiers.__file__).parent
DATA_FILES = sorted(PACKAGE.rglob("data/*.txt"))


def test_words_keep_their_order() -> None:
    words = load_words("langmem_tiers.text.patterns", "programs_and_files", "programs")
    assert words.index("apt-get") < words.index("apt")


def test_comments_are_not_entries() -> None:
    lines = load_lines("langmem_tiers.text.stop_words", "stop_words", "chinese")
    assert lines
    assert not [line for line in lines if "#" in line]


def test_a_number_sign_inside_a_line_is_not_a_comment() -> None:
    groups = dict(load_groups("langmem_tiers.long_term.conflicts.vocabulary", "synonyms", "nouns"))
    assert groups["csharp"] == "c#, c sharp"
    assert groups["q3"] == "#3 quarter"


def test_an_unknown_section_is_an_error() -> None:
    with pytest.raises(KeyError):
        load_words("langmem_tiers.text.stop_words", "stop_words", "klingon")


@pytest.mark.parametrize("path", DATA_FILES, ids=lambda path: path.stem)
def test_a_data_file_has_a_header_and_no_empty_section(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    module = ".".join(["langmem_tiers", *path.relative_to(PACKAGE).parts[:-2], "module"])
    sections = [line[1:-1] for line in text.splitlines() if line.startswith("[")]
    assert text.startswith("# ")
    assert sections
    assert len(sections) == len(set(sections))
    assert all(load_lines(module, path.stem, section) for section in sections)


def test_data_files_ship_with_the_package() -> None:
    build = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    # Hatchling ships every file in these folders that nothing excludes and Git does not ignore.
    assert "langmem_tiers" in build["targets"]["wheel"]["packages"]
    assert build.keys() == {"targets"}
    assert build["targets"]["wheel"].keys() == {"packages"}
    assert not [
        rule for rule in build["targets"]["sdist"]["exclude"] if "langmem_tiers" in rule or "data" in rule
    ]
    ignored = (PACKAGE.parent / ".gitignore").read_text().split()
    assert not {"data", "data/", "*.txt"} & set(ignored)
