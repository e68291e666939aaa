"""A Python program under `shardkeep.hdf5.guard`: ``python -m shardkeep.guard script.py ARGS…``.

::

    python -m shardkeep.guard [--warn | --raise] script.py [ARGS…]
    python -m shardkeep.guard [--warn | --raise] -m package.module [ARGS…]
    python -m shardkeep.guard [--warn | --raise] -c "code" [ARGS…]

The program needs no change: ``sys.argv``, ``sys.path[0]``, ``__main__``, traceback and exit code are the same
as without the guard. Findings that destroy data raise, the others warn; ``--warn`` only warns, ``--raise``
raises for each. If the program cannot be run, the exit codes are those of ``shardkeep``.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
import types
import zipfile
from importlib.machinery import BuiltinImporter, ModuleSpec, PathFinder, SourceFileLoader
from typing import TYPE_CHECKING, Any

from shardkeep.errors import FormatError, NotFoundError, PlanError, ShardkeepError

if TYPE_CHECKING:
    from shardkeep.hdf5.guard.findings import OnFinding

__all__ = ["main"]

Program = types.CodeType | ShardkeepError

_USAGE = "usage: python -m shardkeep.guard [--warn | --raise] (script.py | -m module | -c code) [ARGS…]"


def main(arguments: list[str]) -> int:
    """Run a program, guarded to the end of the process.

    Parameters
    ----------
    arguments : list of str
        Command line without ``python -m shardkeep.guard``.

    Returns
    -------
    int
        2 if the arguments are not valid, 10 if the file or module does not exist. Otherwise the program ends
        as it would without the guard.
    """
    choices: dict[str, OnFinding] = {"--warn": "warn", "--raise": "raise"}
    on_finding = choices.get(arguments[0]) if arguments else None
    rest = arguments[1:] if on_finding else arguments
    if rest[:1] in (["-h"], ["--help"]):
        print(_USAGE)  # noqa: T201
        return 0
    kind, rest = _kind(rest)
    if not rest or (kind == "script" and rest[0].startswith("-")):
        print(_USAGE, file=sys.stderr)  # noqa: T201
        return 2
    from shardkeep.hdf5.guard.watch import guard_child

    # Before the program imports anything.
    guard_child(on_finding)
    module = types.ModuleType("__main__")
    vars(module).update(__builtins__=builtins, __annotations__={})
    find = {"script": _script, "module": _module, "code": _code}[kind]
    # Pickled objects of the program are found in __main__, here and, by its file, in spawned children.
    sys.modules["__main__"] = module
    try:
        code = find(rest[0], rest[1:], vars(module))
        if not isinstance(code, ShardkeepError):
            exec(code, vars(module))
            return 0
    except BaseException:
        _hide_our_frames()
        raise
    print(f"shardkeep.guard: error: {code}", file=sys.stderr)  # noqa: T201
    return code.exit_code


def _kind(arguments: list[str]) -> tuple[str, list[str]]:
    for option, kind in (("-m", "module"), ("-c", "code")):
        if arguments and arguments[0].startswith(option):
            attached = arguments[0].removeprefix(option)
            return kind, [attached, *arguments[1:]] if attached else arguments[1:]
    return "script", arguments


def _script(path: str, arguments: list[str], names: dict[str, Any]) -> Program:
    sys.argv = [path, *arguments]
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        whole = os.path.abspath(path)
        _first_in_path(whole)
        spec = PathFinder.find_spec("__main__", [whole])
        if spec is None:
            return FormatError(f"{path!r} has no __main__ module; pass one of its files", path=path)
        return _code_of(spec, "__main__", names)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except FileNotFoundError:
        return NotFoundError(f"file {path!r} does not exist: pass the path of the program", path=path)
    except OSError as error:
        message = f"{path!r} cannot be read ({error.strerror}); check its permissions"
        return PlanError(message, path=path)
    whole = os.path.abspath(path)
    _first_in_path(os.path.dirname(os.path.realpath(path)))
    names.update(__file__=whole, __cached__=None, __loader__=SourceFileLoader("__main__", whole))
    return compile(source, whole, "exec", dont_inherit=True)


def _module(name: str, arguments: list[str], names: dict[str, Any]) -> Program:
    sys.argv = ["-m", *arguments]
    spec = _spec(name)
    if spec is None:
        return NotFoundError(f"module {name!r} does not exist: pass its full name, or install it")
    if spec.submodule_search_locations is not None:
        spec = _spec(f"{name}.__main__")
        if spec is None:
            return FormatError(f"{name!r} is a package without a __main__; pass one of its modules")
    sys.argv[0] = spec.origin or name
    return _code_of(spec, spec.name, names)


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # A failed import inside an existing package is an error of the program, with its traceback.
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise
    except ValueError:
        return None  # in sys.modules without a spec, or an empty name


def _code(code: str, arguments: list[str], names: dict[str, Any]) -> Program:
    sys.argv = ["-c", *arguments]
    _first_in_path("")
    names["__loader__"] = BuiltinImporter
    return compile(code, "<string>", "exec", dont_inherit=True)


def _code_of(spec: ModuleSpec, name: str, names: dict[str, Any]) -> Program:
    get_code = getattr(spec.loader, "get_code", None)
    code: types.CodeType | None = None if get_code is None else get_code(name)
    if code is None:
        return FormatError(f"module {name!r} has no Python code: pass one that has")
    names.update(
        __file__=spec.origin,
        __cached__=spec.cached,
        __loader__=spec.loader,
        __package__=spec.parent,
        __spec__=spec,
    )
    return code


def _first_in_path(folder: str) -> None:
    # Python puts the current folder there for ``-m shardkeep.guard``, unless options forbid it.
    if not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
        sys.path[:1] = [folder]


def _hide_our_frames() -> None:
    """Show an uncaught error as if Python had started the program itself."""
    hook = sys.excepthook

    def shown(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_code is not main.__code__:
            trace = trace.tb_next  # of runpy, which runs this module
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = shown


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
