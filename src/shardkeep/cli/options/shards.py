"""Options of the commands that write shards."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shardkeep.cli.options.general import (
    choice_option,
    exists_option,
    incomplete_option,
    json_option,
    on_corrupt_option,
)

__all__ = ["SIZE", "compression_option", "copy_options", "sharding_options", "sources_and_output"]

if TYPE_CHECKING:
    _Parameter = click.ParamType[int]  # older versions of click are not generic at run time
else:
    _Parameter = click.ParamType

_F = TypeVar("_F", bound=Callable[..., Any])
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class _Size(_Parameter):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read ``500000``, ``100MB`` (millions) or ``128MiB`` (powers of 1,024)."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", str(value).strip().lower(), re.ASCII)
        if found is None or (found[3] and not found[2]):
            self.fail(f"{value!r} must be like 500000, 100MB or 128MiB", param, ctx)
        size = int(Decimal(found[1]) * (1024 if found[3] else 1000) ** _UNITS[found[2]])
        if size < 1:
            self.fail(f"{value!r} must be at least one byte", param, ctx)
        return size


SIZE = _Size()


def sharding_options(function: _F) -> _F:
    """Add ``--shards``, ``--shard-bytes`` and ``--shard-records``."""
    for option in (
        click.option(
            "--shard-records", type=click.IntRange(min=1), help="Largest number of records of a file."
        ),
        click.option("--shard-bytes", type=SIZE, help="Largest size of a file, such as 100MB or 128MiB."),
        click.option("--shards", type=click.IntRange(min=1), help="Number of files."),
    ):
        function = option(function)
    return function


def compression_option(function: _F) -> _F:
    """Add ``--compression``."""
    return choice_option("--compression", ["none", "gzip", "zlib"], "Compression of the new files.")(function)


def copy_options(function: _F) -> _F:
    """Add the options of a copy of records: compression, checks, damage, missing shards, the output."""
    verify = click.option(
        "--verify/--no-verify", default=True, help="Check the checksums of the payloads, too."
    )
    for option in (
        json_option,
        exists_option,
        incomplete_option,
        on_corrupt_option,
        verify,
        compression_option,
    ):
        function = option(function)
    return function


def sources_and_output(
    paths: tuple[str, ...], output: str | None, name: str, exists: str
) -> tuple[list[str], str]:
    """Return the sources and the output, which is the last argument unless an option has it.

    Raises
    ------
    click.UsageError
        A source or the output is missing; or the name of the file that would be replaced differs from that of
        a source only in its number. The output was then forgotten after ``part-*``, and the last part would
        be lost.
    """
    if output is not None:
        return list(paths), output
    if len(paths) < 2:
        raise click.UsageError(f"pass at least one source and the output: SOURCES... {name}")
    *sources, output = paths
    if exists == "replace" and os.path.isfile(output) and _unnumbered(output) in map(_unnumbered, sources):
        message = f"{output!r} would be replaced, but its name is like those of the sources"
        raise click.UsageError(f"{message}; if it is the output, pass it with -o")
    return sources, output


def _unnumbered(path: str) -> str:
    return re.sub(r"\d+", "#", os.path.normpath(path))
