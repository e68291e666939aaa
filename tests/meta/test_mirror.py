"""The rule that each module has a test of its name, or a neighbour's test that says so.

The test of ``src/shardkeep/a/b.py`` is ``tests/unit/a/test_b.py``. A test module that covers other modules,
or has no module of its name, names them in its docstring: "Covers `shardkeep.a.b` and `shardkeep.a.c`."
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src/shardkeep"
UNIT = ROOT / "tests/unit"

MODULES = sorted(
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if path.stem not in ("__init__", "__main__")
)
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))


@cache
def covered(test: Path) -> tuple[str, ...]:
    """Return the modules that a test module names in its docstring."""
    text = ast.get_docstring(ast.parse(test.read_text(encoding="utf-8"))) or ""
    sentences = re.findall(r"\bCovers (`.*?`)\.(?:\s|$)", text, re.DOTALL)
    return tuple(name for sentence in sentences for name in re.findall(r"`([\w.]+)`", sentence))


def mirrored(test: Path) -> str:
    """Return the module or package that a unit test is named after."""
    path = test.relative_to(UNIT).with_name(test.stem.removeprefix("test_"))
    return ".".join(("shardkeep", *path.parts))


def exists(module: str) -> bool:
    path = SOURCE.parent.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def own_test(module: str) -> Path:
    return UNIT.joinpath(*module.split(".")[1:-1], f"test_{module.rpartition('.')[2]}.py")


def test_a_module_has_a_test() -> None:
    named = {module for test in TESTS for module in covered(test)}
    assert [module for module in MODULES if module not in named and not own_test(module).is_file()] == []


def test_a_test_names_modules_that_exist() -> None:
    assert [(test, module) for test in TESTS for module in covered(test) if not exists(module)] == []


def test_a_unit_test_is_named_after_a_module_or_names_those_it_covers() -> None:
    units = [test for test in TESTS if UNIT in test.parents]
    assert [test for test in units if not exists(mirrored(test)) and not covered(test)] == []
