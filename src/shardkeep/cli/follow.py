"""The command ``shardkeep follow``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from shardkeep.cli.options.general import PATH, command, examples, json_option

if TYPE_CHECKING:
    from shardkeep.tfrecord import FileChange


@command
@examples(
    "shardkeep follow train.tfrecord --idle-timeout 1",
    "shardkeep follow train.tfrecord --new --json --idle-timeout 1",
)
@click.argument("path", type=PATH)
@click.option(
    "--idle-timeout",
    "idle_timeout_s",
    type=click.FloatRange(min=0),
    help="End after so many seconds without a new record; by default never.",
)
@click.option("--new", is_flag=True, help="Begin after the last whole record.")
@click.option("--once", is_flag=True, help="Fail if the file is replaced, truncated or deleted.")
@click.option("--raw", is_flag=True, help="Write the bytes of each record as they are.")
@json_option
def follow(path: str, idle_timeout_s: float | None, new: bool, once: bool, raw: bool, as_json: bool) -> None:
    """Print the records of a TFRecord file as they are written.

    Each record is printed when it is whole and its checksums match. If another file takes the
    place of PATH, a message is written to standard error and the new file is followed from its
    first record. A PATH that does not exist is waited for. Ctrl-C ends the command.
    """
    from shardkeep.cli.output.items import check_form, print_items
    from shardkeep.errors import one_line
    from shardkeep.jobs import show_record
    from shardkeep.tfrecord import follow as records_of

    check_form(raw=raw, as_json=as_json)

    def tell(change: FileChange) -> None:
        told = f"{change.path} was {change.kind} after record {change.record:,}; following the new one"
        click.echo(f"shardkeep: {one_line(told)}", err=True)

    records = records_of(
        path, idle_timeout_s=idle_timeout_s, from_start=not new, on_change="raise" if once else tell
    )
    if not os.path.exists(path):
        click.echo(f"shardkeep: {one_line(path)} does not exist; waiting for it", err=True)
    items = (show_record(number, record) for number, record in enumerate(records))
    print_items(items, raw=raw, as_json=as_json, at_once=True)
