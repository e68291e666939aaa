"""The rules of the house that no linter knows.

Covers `shardkeep._lazy` and `shardkeep._version`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import shardkeep
from shardkeep import errors
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

SOURCES = sorted((ROOT / "src/shardkeep").rglob("*.py"))
# An adapter imports its framework, which has its own venv.
PACKAGES = ["shardkeep"] + [
    f"shardkeep.{found.name}"
    for found in pkgutil.iter_modules(shardkeep.__path__)
    if found.ispkg and found.name != "adapters"
]
MODULES = [
    found.name
    for found in pkgutil.walk_packages(shardkeep.__path__, "shardkeep.")
    if not found.name.startswith("shardkeep.adapters")
]
# What DESIGN.md promises to callers and what exists of it. Names only ever come in, none goes.
PUBLIC = {
    "shardkeep": {
        "FixedLen",
        "Image",
        "Loader",
        "Ragged",
        "VarLen",
        "World",
        "audit",
        "cat",
        "concat",
        "demo",
        "files",
        "follow",
        "hdf5",
        "info",
        "jobs",
        "merge",
        "pack",
        "split",
        "tfrecord",
        "verify",
    },
    "shardkeep.files": {"budget", "lock", "publish"},
    "shardkeep.hdf5": {"MergeReport", "WorkerFile", "merge", "receipts", "rollback", "verify"},
    "shardkeep.jobs": {"audit", "cat", "concat", "info", "pack", "split", "verify"},
    "shardkeep.tfrecord": {
        "Reader",
        "ShardWriter",
        "Writer",
        "build_index",
        "decode_example",
        "decode_sequence_example",
        "encode_example",
        "encode_sequence_example",
        "follow",
        "infer_schema",
        "read_arrow",
        "read_columns",
        "read_scalars",
    },
}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_room_is_called_utils() -> None:
    assert [path for path in SOURCES if re.search(r"util|helper|misc|common", path.stem)] == []


@pytest.mark.parametrize("path", [path for path in SOURCES if path.name == "__init__.py"], ids=relative)
def test_init_holds_imports_and_all_only(path: Path) -> None:
    for number, statement in enumerate(ast.parse(path.read_text(encoding="utf-8")).body):
        if number == 0 and isinstance(statement, ast.Expr):
            continue  # the docstring
        names = [target.id for target in getattr(statement, "targets", []) if isinstance(target, ast.Name)]
        lazy = isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
        fine = isinstance(statement, (ast.Import, ast.ImportFrom)) or lazy
        assert fine or set(names) & {"__all__", "__version__", "__getattr__", "__dir__"}, ast.unparse(
            statement
        )


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_true(name: str) -> None:
    package = importlib.import_module(name)
    assert len(package.__all__) == len(set(package.__all__))
    for public in package.__all__:
        assert getattr(package, public) is not None
    promised = PUBLIC.get(name, set()) | (set(errors.__all__) if name == "shardkeep" else set())
    assert promised <= set(package.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_exports_is_documented(name: str) -> None:
    module = importlib.import_module(name)
    if name.endswith(("._core", "__main__")):
        return
    assert inspect.getdoc(module), "a module says what a reader finds in it"
    for public in getattr(module, "__all__", []):
        value = getattr(module, public)
        if isinstance(value, ModuleType) or not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        assert inspect.getdoc(value), f"{name}.{public}"
        if inspect.isclass(value) and value.__module__ == name:
            for member, what in vars(value).items():
                if not member.startswith("_") and (inspect.isroutine(what) or isinstance(what, property)):
                    assert inspect.getdoc(what), f"{name}.{public}.{member}"


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_has_the_public_names_and_no_other(name: str) -> None:
    package = importlib.import_module(name)
    if name != "shardkeep.cli":  # the command, not a package for programs
        assert dir(package) == sorted(package.__all__)


def test_version_is_that_of_the_project() -> None:
    cargo = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert cargo
    command = [sys.executable, "-m", "shardkeep", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert shardkeep.__version__ == cargo[1], "run `make setup`: the installed package has another version"
    assert done.stdout == f"shardkeep {cargo[1]}\n"


def test_importing_everything_loads_no_optional_dependency() -> None:
    optional = [
        "sklearn",
        "PIL",
        "tensorflow",
        "keras",
        "torch",
        "jax",
        "ray",
        "dask",
        "fsspec",
        "zmq",
        "pyarrow",
    ]
    code = f"""
import importlib, json, sys
for name in {MODULES!r}:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(json.dumps(sorted(set({optional!r}) & set(sys.modules))))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert json.loads(done.stdout) == []


def test_importing_starts_no_thread_and_opens_no_file() -> None:
    code = """
import os, threading
before = set(os.listdir("/proc/self/fd"))
import shardkeep, shardkeep.hdf5, shardkeep.loader, shardkeep.tfrecord

assert threading.active_count() == 1, threading.enumerate()
assert set(os.listdir("/proc/self/fd")) == before
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_unit_tests_mirror_the_source() -> None:
    folders = {
        path.parent.relative_to(ROOT / "tests/unit") for path in (ROOT / "tests/unit").rglob("test_*.py")
    }
    assert [str(folder) for folder in sorted(folders) if not (ROOT / "src/shardkeep" / folder).is_dir()] == []


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    done = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    listed = [line.split()[:2] for line in done.stdout.splitlines()]
    assert listed == [["make", target] for target in phony[1].split()]
    assert {"setup", "demo", "test", "lint", "bench", "docs", "ci"} <= {target for _, target in listed}


def test_ci_runs_what_people_run() -> None:
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "exec make ci"
