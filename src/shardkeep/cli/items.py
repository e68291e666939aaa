"""How the commands that print records or rows one by one do it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from shardkeep.jobs import RecordItem, RowItem

__all__ = ["check_form", "print_items"]


def check_form(*, raw: bool, as_json: bool) -> None:
    """Refuse two forms at once."""
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")


def print_items(
    items: Iterable[RecordItem | RowItem], *, raw: bool, as_json: bool, at_once: bool = False
) -> None:
    """Print items as they come.

    Parameters
    ----------
    raw : bool
        The bytes of records as they are, with nothing in between.
    as_json : bool
        Each as a line of JSON.
    at_once : bool
        Each is to be seen before the next one comes.
    """
    from shardkeep.cli.output import print_item, print_json_line
    from shardkeep.jobs import RecordItem

    for item in items:
        if raw:
            if not isinstance(item, RecordItem):
                raise click.UsageError("--raw is for the records of TFRecord files")
            sys.stdout.buffer.write(item.data)
        elif as_json:
            print_json_line(item.to_dict())
        else:
            print_item(item)
        if at_once:
            sys.stdout.flush()
