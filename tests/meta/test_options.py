"""Options with a fixed set of values have a Literal type, which agrees with the documentation."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from numpydoc.docscrape import FunctionDoc

from tests.meta.test_docstrings import FUNCTIONS, PACKAGES


def documented() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Yield the name, the callable with the parameters, and the docstring of public functions and classes."""
    for name, function in FUNCTIONS.items():
        yield name, function, inspect.getdoc(function) or ""
    for package in map(importlib.import_module, PACKAGES):
        for key in package.__all__:
            value = getattr(package, key)
            if inspect.isclass(value) and value.__init__ is not object.__init__:
                yield f"{package.__name__}.{key}", value.__init__, inspect.getdoc(value) or ""


def options() -> dict[str, tuple[Callable[..., Any], str, set[str]]]:
    """Return function, parameter and choices of the options whose documented type lists strings."""
    found = {}
    for name, function, text in documented():
        for parameter in FunctionDoc(None, doc=text)["Parameters"]:
            if parameter.type.startswith(("{", '"')):
                choices = set(re.findall(r'"([^"]+)"', parameter.type))
                for one in parameter.name.split(", ") if choices else ():
                    found[f"{name} {one}"] = (function, one, choices)
    return found


def literals(hint: Any) -> Iterator[Any]:
    """Yield the values of all Literals of a type; the type itself for one that allows any str."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif get_origin(hint) in (Union, UnionType):
        for one in get_args(hint):
            yield from literals(one)
    elif hint in (str, Any):
        yield hint


OPTIONS = options()


@pytest.mark.parametrize("option", OPTIONS)
def test_choices_are_a_literal_type(option: str) -> None:
    function, parameter, choices = OPTIONS[option]
    typed = set(literals(get_type_hints(function)[parameter]))
    assert {one for one in typed if isinstance(one, str)} == choices
    assert not typed & {str, Any}


def test_options_are_found() -> None:
    names = {name.rsplit(" ", 1)[1] for name in OPTIONS}
    assert names >= {
        "compression",
        "dtype",
        "exists",
        "mode",
        "on_corrupt",
        "remainder",
        "shard_by",
        "shuffle",
    }
