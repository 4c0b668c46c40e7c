"""Speakers of a namespace and the names by which they are mentioned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.text.nicknames import build_name_forms
from langmem_tiers.text.tokenize import is_unspaced

if TYPE_CHECKING:
    from collections.abc import Iterable


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
