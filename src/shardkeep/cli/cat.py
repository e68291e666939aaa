"""``shardkeep cat``: the records of a TFRecord file, the rows of an HDF5 dataset."""

from __future__ import annotations

import sys

import click

from shardkeep.cli.options import command, json_option


@command
@click.argument("path", type=click.Path())
@click.argument("dataset", required=False)
@click.option("-n", "--limit", type=click.IntRange(min=0), help="Print at most this many; all if not given.")
@click.option(
    "--skip", type=click.IntRange(min=0), default=0, show_default=True, help="Pass over this many first."
)
@click.option(
    "--raw", is_flag=True, help="Write the bytes of each record as they are, with nothing in between."
)
@json_option
def cat(path: str, dataset: str | None, limit: int | None, skip: int, raw: bool, as_json: bool) -> None:
    """Print the records of a TFRecord file or rows of HDF5.

    Records that are tf.train.Example messages are shown feature by feature. DATASET is needed
    where an HDF5 file has several. With --json each record or row is one line of JSON; the values
    of bytes features are base64 there, and numbers that JSON does not have are strings ("NaN").
    """
    from shardkeep.cli.output import print_item, print_json_line
    from shardkeep.jobs import RecordItem
    from shardkeep.jobs import cat as read_items

    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    for item in read_items(path, dataset=dataset, skip=skip, limit=limit):
        if raw:
            if not isinstance(item, RecordItem):
                raise click.UsageError("--raw is for the records of TFRecord files")
            sys.stdout.buffer.write(item.data)
        elif as_json:
            print_json_line(item.to_dict())
        else:
            print_item(item)
