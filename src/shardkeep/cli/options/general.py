"""Options of several commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

__all__ = [
    "PATH",
    "Command",
    "Settings",
    "choice_option",
    "command",
    "debug_option",
    "examples",
    "exists_option",
    "incomplete_option",
    "json_option",
    "on_corrupt_option",
]

_F = TypeVar("_F", bound=Callable[..., Any])

PATH = click.Path(readable=False)
"""A path that the function of the command opens: its errors and findings are more exact than click's."""


@dataclass
class Settings:
    """Settings of the whole call; click passes them as ``ctx.obj``."""

    debug: bool = False


def _set_debug(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Settings).debug = True


def debug_option(function: _F) -> _F:
    """Add ``--debug``, before or after the name of the command."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_set_debug,
        help="Show the traceback of an error.",
    )(function)


class Command(click.Command):
    """A command whose help ends with examples."""

    examples: tuple[str, ...] = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        with formatter.section("Examples"):
            formatter.write("".join(f"  {example}\n" for example in self.examples))


def command(function: Callable[..., Any]) -> Command:
    """Return the command of `function`, with its name, its `examples` and the options of every command.

    Modules of commands import the functions that they call when they run. Otherwise ``shardkeep --help``
    would load NumPy and HDF5.
    """
    made = click.command(cls=Command, no_args_is_help=False)(debug_option(function))
    made.examples = getattr(function, "__examples__", ())
    return made


def examples(*calls: str) -> Callable[[_F], _F]:
    """Return a decorator that stores calls for the help of the command, as a user types them."""

    def decorate(function: _F) -> _F:
        function.__examples__ = calls  # type: ignore[attr-defined]
        return function

    return decorate


def json_option(function: _F) -> _F:
    """Add ``--json``, which is passed as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")(function)


def choice_option(name: str, values: list[str], what: str) -> Callable[[_F], _F]:
    """Return an option with some values, of which the first is the default."""
    return click.option(name, type=click.Choice(values), default=values[0], show_default=True, help=what)


def incomplete_option(function: _F) -> _F:
    """Add ``--incomplete`` for sets of shards."""
    return choice_option(
        "--incomplete",
        ["refuse", "warn", "allow"],
        "What to do if shards of a set -00003-of-00008 are missing, or sets of different sizes are mixed.",
    )(function)


def on_corrupt_option(function: _F) -> _F:
    """Add ``--on-corrupt``."""
    what = "At a damaged record fail, skip it, or correct a flipped bit (TFRecord only)."
    return choice_option("--on-corrupt", ["raise", "skip", "repair"], what)(function)


def exists_option(function: _F) -> _F:
    """Add ``--exists``."""
    return choice_option("--exists", ["fail", "replace"], "What to do if the output exists.")(function)
