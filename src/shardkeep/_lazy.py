"""Public names of a package that are imported when they are first used.

``import shardkeep`` and ``shardkeep --help`` would otherwise load NumPy and HDF5, which takes longer
than everything else together; and HDF5 reads ``HDF5_USE_FILE_LOCKING`` once, when it is loaded.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazily"]


def lazily(package: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    where : mapping
        Module to the public names it has, separated by blanks; a module with no names is itself public.
    """
    places = {name: (module, name) for module, names in where.items() for name in names.split()}
    places |= {module.rpartition(".")[2]: (module, "") for module, names in where.items() if not names}

    def __getattr__(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, inner = places[name]
        value = importlib.import_module(module)
        if inner:
            value = getattr(value, inner)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return __getattr__, __dir__
