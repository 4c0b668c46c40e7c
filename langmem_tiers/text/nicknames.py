"""Short forms of names in scripts without spaces between words.

王小明 is 小明 to friends, 明明 or 阿明 to family and 小王 at work; 田中太郎 is 田中 or 太郎. A single
character is never a form, because it occurs in too many other words.
"""

from __future__ import annotations

import re

from langmem_tiers.text.word_lists import load_words

_HAN_NAME = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]{2,4}")
_HANGUL_NAME = re.compile("[\uac00-\ud7af]{3}")
_HAN_AND_KANA = re.compile("([\u3400-\u4dbf\u4e00-\u9fff]{2,3})([\u3040-\u30ff]{2,})")
_HONORIFICS = frozenset("さん くん ちゃん さま".split())
_TWO_CHARACTER_SURNAMES = frozenset(load_words(__name__, "names", "chinese surnames"))
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
