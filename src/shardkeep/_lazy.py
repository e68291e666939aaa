"""Public names of a package that are imported at their first use.

``import shardkeep`` and ``shardkeep --help`` would otherwise load NumPy and HDF5, which takes longer than
everything else together. HDF5 also reads ``HDF5_USE_FILE_LOCKING`` only once, when it is loaded.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazily", "public_names"]


def public_names(package: str) -> Callable[[], list[str]]:
    """Return ``__dir__`` for a package: the names in its ``__all__``, without modules and imports.

    Parameters
    ----------
    package : str
        The ``__name__`` of the package.
    """

    def __dir__() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return __dir__


def lazily(package: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Parameters
    ----------
    package : str
        The ``__name__`` of the package.
    where : mapping
        Module to its public names, separated by blanks. The module itself is public if its own last name is
        among them.

    Returns
    -------
    __getattr__, __dir__ : callable
        The two functions, to be assigned in the package.
    """
    places = {
        name: (module, "" if name == module.rpartition(".")[2] else name)
        for module, names in where.items()
        for name in names.split()
    }

    def __getattr__(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, inner = places[name]
        value = importlib.import_module(module)
        if inner:
            value = getattr(value, inner)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__, public_names(package)
