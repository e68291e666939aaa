"""Public functions and methods say what they take, return and raise, as numpydoc's validation sees it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from numpydoc.validate import validate

PACKAGES = ["shardkeep"] + [
    f"shardkeep.{name}" for name in ("demo", "files", "hdf5", "jobs", "loader", "plan", "tfrecord")
]
# PR01: a parameter is missing; PR02: it does not exist; RT01, YD01: no Returns, no Yields.
CODES = {"PR01", "PR02", "RT01", "YD01"}
# The sections are those of another function, which the docstring names.
REFERS = re.compile(r"\b[Ss]ee `|^\.\. deprecated::", re.MULTILINE)


def public() -> dict[str, Callable[..., Any]]:
    """Return the functions and methods that are reachable from public names, by full name."""
    found: dict[str, Callable[..., Any]] = {}
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            value = getattr(package, name)
            members = {"": value}
            if inspect.isclass(value):
                members = {f".{key}": what for key, what in vars(value).items() if not key.startswith("_")}
            for key, what in members.items():
                function = getattr(what, "__func__", what)
                if inspect.isfunction(function) and function.__module__.startswith("shardkeep."):
                    found[f"{value.__module__}.{value.__qualname__}{key}"] = function
    return found


FUNCTIONS = public()


def returns_what_the_summary_says(function: Callable[..., Any]) -> bool:
    """Return True for one line such as "Return the report as JSON." of a function without parameters."""
    takes = set(inspect.signature(function).parameters) - {"self", "cls"}
    text = inspect.getdoc(function) or ""
    return not takes and text.startswith("Return ") and "\n" not in text


def raised(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the errors that the body of a function raises."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        call = node.exc if isinstance(node, ast.Raise) else None
        name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if name.endswith("Error"):
            yield name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sections_are_complete(name: str) -> None:
    function = FUNCTIONS[name]
    text = inspect.getdoc(function) or ""
    if REFERS.search(text) and "\n---" not in text:
        return
    findings = [message for code, message in validate(name)["errors"] if code in CODES]
    if returns_what_the_summary_says(function) or "\nYields\n" in text:
        findings = [message for message in findings if message != "No Returns section found"]
    findings += [f"{error} is not documented" for error in raised(function) if error not in text]
    assert findings == []
