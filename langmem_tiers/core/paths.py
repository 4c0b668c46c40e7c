"""Namespaces as people write them: labels parted by slashes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.core.errors import InvalidNameError
from langmem_tiers.core.names import check_namespace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.names import NamespacePath

_SLASH = re.compile(r"\\(.)|/", re.DOTALL)


def path_of(text: str) -> NamespacePath:
    """The namespace of ``acme/alice``; a slash or a backslash within a label stands behind a backslash."""
    labels, start, label = [], 0, ""
    for found in _SLASH.finditer(text):
        label += text[start : found.start()]
        start = found.end()
        if found[1] is None:
            labels.append(label)
            label = ""
        else:
            label += found[1]
    try:
        return check_namespace([*labels, label + text[start:]])
    except InvalidNameError as error:
        raise InvalidNameError(
            f"{text!r} is no namespace ({error}): write its labels as acme/alice"
        ) from error


def shown(path: Sequence[str]) -> str:
    """A namespace as ``path_of`` reads it."""
    return "/".join(label.replace("\\", "\\\\").replace("/", "\\/") for label in path)
