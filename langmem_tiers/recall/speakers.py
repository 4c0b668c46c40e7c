"""Speakers of a namespace and the names by which they are mentioned.

Names in scripts without spaces have short forms: 王小明 is 小明 to friends, 明明 or 阿明 to family and 小王 at work;
田中太郎 is 田中 or 太郎. A single character is never a form, because it occurs in too many other words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.text.tokenize import is_unspaced
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Iterable


_HAN_NAME = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]{2,4}")
_HANGUL_NAME = re.compile("[\uac00-\ud7af]{3}")
_HAN_AND_KANA = re.compile("([\u3400-\u4dbf\u4e00-\u9fff]{2,3})([\u3040-\u30ff]{2,})")
_HONORIFICS = frozenset("さん くん ちゃん さま".split())
_TWO_CHARACTER_SURNAMES = frozenset(load_words(__name__, "surnames", "surnames"))
_FAMILIAR_PREFIXES = "小阿老大"


def build_name_forms(name: str) -> tuple[str, ...]:
    """Return the other forms of a name in simplified characters; empty for names in other scripts."""
    if _HAN_NAME.fullmatch(name):
        return _build_han_forms(name)
    if _HANGUL_NAME.fullmatch(name):
        return (name[1:],)
    if parts := _HAN_AND_KANA.fullmatch(name):
        return tuple(part for part in parts.groups() if part not in _HONORIFICS)
    return ()


def _build_han_forms(name: str) -> tuple[str, ...]:
    if name[0] in _FAMILIAR_PREFIXES or name[0] == name[-1]:
        return ()  # already a short form
    # Four characters have a two-character surname, as do those in the list; all others have one character.
    family = name[:2] if len(name) == 4 or name[:2] in _TWO_CHARACTER_SURNAMES else name[0]
    given = name[len(family) :]
    if not given:
        return ()
    called = (given, family) if len(family) > 1 else (given, f"小{family}", f"老{family}")
    familiar = (given[-1] * 2, f"小{given[-1]}", f"阿{given[-1]}")
    return tuple(dict.fromkeys(form for form in (*called, *familiar) if len(form) > 1))


class Speakers:
    """Numbers of speakers by name. 0 is the number of messages without a speaker's name.

    Each word of a speaker's name refers to the speaker, for example the first name alone.
    """

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {None: 0}
        self._by_name: dict[str, set[int]] = {}
        self._by_name_form: dict[str, set[int]] = {}
        self.max_name_characters = 0
        """Length of the longest name in a script without spaces."""

    def __contains__(self, name: object) -> bool:
        return name in self._by_name or name in self._by_name_form

    def get_or_add_number(self, terms: str | None) -> int:
        """Return the number of the speaker with these terms in the name, and add the speaker if unknown."""
        number = self._numbers.get(terms)
        if number is None:
            number = self._numbers[terms] = len(self._numbers)
            words = (terms or "").split()
            for word in words:
                self._add(word, number, is_whole=len(words) == 1)
        return number

    def find_numbers(self, names: Iterable[str]) -> set[int]:
        """Return the numbers of the speakers with any of the names.

        A short or familiar form of a name counts only if no speaker has exactly this name.
        """
        return {
            number
            for name in names
            for number in self._by_name.get(name, self._by_name_form.get(name, set()))
        }

    def _add(self, word: str, number: int, *, is_whole: bool) -> None:
        if not is_unspaced(word):
            self._by_name.setdefault(word, set()).add(number)
            return
        if len(word) == 1 and not is_whole:
            # A single character, such as a Chinese surname, occurs in too many words.
            return
        self.max_name_characters = max(self.max_name_characters, len(word))
        self._by_name.setdefault(word, set()).add(number)
        for form in build_name_forms(word):
            self._by_name_form.setdefault(form, set()).add(number)
