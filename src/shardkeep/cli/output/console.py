"""Printing of tables and JSON documents."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from shardkeep.cli.output.json_text import json_text
from shardkeep.quantities import human_bytes

__all__ = [
    "console",
    "facts",
    "listing",
    "one_line_text",
    "print_json",
    "print_json_line",
    "print_parts",
    "size_text",
]

_WIDTH = 80
_COMMANDS = ("next", "prove")


def console(*, stderr: bool = False) -> Console:
    """Return the console for tables.

    It uses colours only on a terminal and without NO_COLOR, and is 80 columns wide in a pipe.
    """
    out = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = _WIDTH
    return out


def print_json(value: Any) -> None:
    """Print a value as one indented JSON document."""
    click.echo(json_text(value, indent=2))


def print_json_line(value: Any) -> None:
    """Print a value as one line of JSON."""
    click.echo(json_text(value))


def size_text(count: int) -> str:
    """Return a size for people, followed by the exact number of bytes if it was rounded."""
    return human_bytes(count) if count < 1024 else f"{human_bytes(count)} ({count:,} bytes)"


def one_line_text(text: str) -> Text:
    """Return a text with a command, which is not divided, however long: its lines could not be copied."""
    return Text(text, no_wrap=True, overflow="ignore")


def facts(rows: Mapping[str, str]) -> RenderableType:
    """Return a table of two columns: names and their values; the command to continue with is one line."""
    width = max(map(len, rows), default=0)
    parts: list[RenderableType] = []
    for name, value in rows.items():
        if name in _COMMANDS:
            for number, line in enumerate(value.splitlines()):
                text = one_line_text(f"{'' if number else name:<{width}}  {line}")
                text.stylize("bold", 0, width)
                parts.append(text)
            continue
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", min_width=width)
        table.add_column(overflow="fold")
        table.add_row(name, value)
        parts.append(table)
    return Group(*parts)


def listing(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table with a header; the columns named in `right` are aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def print_parts(*parts: RenderableType) -> None:
    """Print tables and texts, separated by empty lines and without blanks at the ends of lines."""
    out = console()
    with out.capture() as captured:
        for number, part in enumerate(parts):
            if number:
                out.print()
            out.print(Group(part), crop=False)
    # Rich fills every line up to the width of its table.
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
