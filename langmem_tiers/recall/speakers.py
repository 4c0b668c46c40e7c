"""Who speaks in a namespace, and by what names they are spoken of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.text.nicknames import build_name_forms
from langmem_tiers.text.tokenize import is_unspaced

if TYPE_CHECKING:
    from collections.abc import Iterable


class Speakers:
    """Speakers by number, 0 for those without a name. Any word of a name is a name."""

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {None: 0}
        self._by_name: dict[str, set[int]] = {}
        self._by_name_form: dict[str, set[int]] = {}
        self.max_name_characters = 0
        """Characters of the longest name that is one run of a script without spaces."""

    def __contains__(self, name: object) -> bool:
        return name in self._by_name or name in self._by_name_form

    def get_or_add_number(self, terms: str | None) -> int:
        """The number of the speaker whose name has these terms."""
        number = self._numbers.get(terms)
        if number is None:
            number = self._numbers[terms] = len(self._numbers)
            words = (terms or "").split()
            for word in words:
                self._add(word, number, is_whole=len(words) == 1)
        return number

    def find_numbers(self, names: Iterable[str]) -> set[int]:
        """Of all who have one of the names; a form of a name counts where it is nobody's name."""
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
            return  # a surname by itself stands in too many words
        self.max_name_characters = max(self.max_name_characters, len(word))
        self._by_name.setdefault(word, set()).add(number)
        for form in build_name_forms(word):
            self._by_name_form.setdefault(form, set()).add(number)
