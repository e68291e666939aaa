"""Run a Python program under `shardkeep.hdf5.guard`: ``python -m shardkeep.guard script.py ARGS…``.

::

    python -m shardkeep.guard [--warn | --raise] script.py [ARGS…]
    python -m shardkeep.guard [--warn | --raise] -m package.module [ARGS…]

The program needs no change. Findings that destroy data raise, the others warn; ``--warn`` only warns,
``--raise`` raises for each.
"""

from __future__ import annotations

import os
import runpy
import sys
import types

__all__ = ["main"]

_USAGE = "usage: python -m shardkeep.guard [--warn | --raise] (script.py | -m module) [ARGS…]"


def main(arguments: list[str]) -> int:
    """Run the program that `arguments` name.

    Returns
    -------
    int
        2 if they name none. Otherwise the program ends as it would alone.
    """
    from shardkeep.hdf5 import guard
    from shardkeep.hdf5.guard_findings import OnFinding

    choices: dict[str, OnFinding] = {"--warn": "warn", "--raise": "raise"}
    on_finding = choices.get(arguments[0]) if arguments else None
    rest = arguments[1:] if on_finding else arguments
    as_module = rest[:1] == ["-m"]
    rest = rest[1:] if as_module else rest
    if not rest or rest[0].startswith("-"):
        print(_USAGE, file=sys.stderr)  # noqa: T201
        return 2
    with guard(on_finding=on_finding):
        sys.argv = rest
        if as_module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            _run_script(rest[0])
    return 0


def _run_script(path: str) -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    # What the script pickles is looked up in __main__, here and, by this file, in spawned children.
    module = types.ModuleType("__main__")
    module.__file__ = path
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
