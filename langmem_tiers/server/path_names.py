"""Names within an address, whatever they hold."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor

_KIND = "langmem_tiers_name"


class _AnyName(Convertor[str]):
    regex = r"[\s\S]*"  # the dot of Starlette's own, `path`, passes over no end of a line

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def any_name(parameter: str) -> str:
    """A parameter of a path that takes any text, slashes and ends of lines included."""
    register_url_convertor(_KIND, _AnyName())
    return f"{{{parameter}:{_KIND}}}"
