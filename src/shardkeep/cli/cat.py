"""The command ``shardkeep cat``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardkeep.cli.options.general import command, json_option, on_corrupt_option

if TYPE_CHECKING:
    from shardkeep.tfrecord.damage import OnCorrupt


@command
@click.argument("path", type=click.Path())
@click.argument("dataset", required=False)
@click.option("-n", "--limit", type=click.IntRange(min=0), help="Print at most this many.")
@click.option(
    "--skip",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Skip this many at the beginning.",
)
@click.option("--raw", is_flag=True, help="Write the bytes of each record, without separators.")
@on_corrupt_option
@json_option
def cat(
    path: str,
    dataset: str | None,
    limit: int | None,
    skip: int,
    raw: bool,
    on_corrupt: OnCorrupt,
    as_json: bool,
) -> None:
    """Print the records of a TFRecord file or rows of HDF5.

    Records that are tf.train.Example messages are shown feature by feature. DATASET is required if
    an HDF5 file has several. With --json each record or row is one line of JSON, in which bytes
    are base64 text and numbers that JSON does not have are strings ("NaN").
    """
    from shardkeep.cli.output.items import check_form, print_items
    from shardkeep.jobs import cat as read_items

    check_form(raw=raw, as_json=as_json)
    items = read_items(path, dataset=dataset, skip=skip, limit=limit, on_corrupt=on_corrupt)
    print_items(items, raw=raw, as_json=as_json)
