"""Lazy public names of packages (PEP 562): a module is imported when one of its names is first used.

Importing ``langmem_tiers`` is therefore cheap, and packages can offer names of modules that import the package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from langmem_tiers.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


def lazy_exports(
    package: str, names_by_module: Mapping[str, str], *, extra: str = "", extra_packages: Collection[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Call it in the ``else`` branch of ``if TYPE_CHECKING:``, whose other branch imports the same names. Type checkers
    would otherwise accept any name.

    Args:
        package: ``__name__`` of the package.
        names_by_module: Names, separated by spaces, by the relative name of their module, such as ``".models"``.
        extra: Extra of ``langmem-tiers`` that the modules need.
        extra_packages: Top-level packages that the extra installs. If one of them is missing, the error names the
            extra.
    """
    modules = {name: module for module, names in names_by_module.items() for name in names.split()}

    def get_attribute(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(modules[name], package), name)
        except ModuleNotFoundError as error:
            # Any other missing module is a defect, not an extra that is not installed.
            if (error.name or "").partition(".")[0] not in extra_packages:
                raise
            raise MissingExtraError(
                f"{name} needs {error.name!r}, which is not installed: pip install 'langmem-tiers[{extra}]'"
            ) from error

    def list_attributes() -> list[str]:
        return sorted({*vars(import_module(package)), *modules})

    return get_attribute, list_attributes
