"""Options that several commands share, written once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

__all__ = ["Settings", "choice_option", "command", "debug_option", "exists_option", "json_option"]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass
class Settings:
    """What holds for the whole call; click hands it down as ``ctx.obj``."""

    debug: bool = False


def _set_debug(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Settings).debug = True


def debug_option(function: _F) -> _F:
    """Add ``--debug``; it may stand before or behind the name of the command."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_set_debug,
        help="Show the traceback of an error.",
    )(function)


def command(function: Callable[..., Any]) -> click.Command:
    """Make a command of `function`, named after it, with what every command has.

    Modules of commands import what they call inside the function: ``shardkeep --help`` would
    otherwise load NumPy and HDF5 first.
    """
    return click.command(no_args_is_help=False)(debug_option(function))


def json_option(function: _F) -> _F:
    """Add ``--json``, passed on as ``as_json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON for programs instead of tables for people."
    )(function)


def choice_option(name: str, values: list[str], what: str) -> Callable[[_F], _F]:
    """Return an option that takes one of some words; the first if it is not given."""
    return click.option(name, type=click.Choice(values), default=values[0], show_default=True, help=what)


def exists_option(function: _F) -> _F:
    """Add ``--exists``: what to do where the output is there already."""
    return click.option(
        "--exists",
        type=click.Choice(["fail", "replace"]),
        default="fail",
        show_default=True,
        help="What to do if the output is there already.",
    )(function)
