"""The command ``shardkeep cat``."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from shardkeep.cli.options.general import PATH, command, examples, json_option, on_corrupt_option
from shardkeep.cli.options.paths import complete_dataset, data_files, is_dataset


@command
@examples(
    "shardkeep cat train.tfrecord --limit 3",
    "shardkeep cat all.h5 loss --skip 2 --json",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATHS... [DATASET]", type=PATH)
@click.option("--dataset", shell_complete=complete_dataset, help="Dataset of HDF5 files that have several.")
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
    paths: tuple[str, ...], limit: int | None, skip: int, raw: bool, as_json: bool, **options: Any
) -> None:
    """Print the records of TFRecord files or rows of HDF5.

    PATHS are files, patterns or folders. Records that are tf.train.Example messages are shown
    feature by feature. DATASET may follow a single HDF5 file. With --json each record or row is one
    line of JSON, in which bytes are base64 text and numbers that JSON does not have are strings
    ("NaN"). --skip and --limit count over all files.
    """
    from shardkeep.cli.output.items import check_form, print_files, print_items
    from shardkeep.jobs import cat as read_items

    check_form(raw=raw, as_json=as_json)
    *rest, last = paths
    if len(rest) == 1 and options["dataset"] is None and is_dataset(rest[0], last):
        paths, options["dataset"] = (rest[0],), last
    files = data_files(paths, "tfrecord", "hdf5")
    if len(files) == 1:
        print_items(read_items(files[0], skip=skip, limit=limit, **options), raw=raw, as_json=as_json)
        return
    items = ((path, item) for path in files for item in read_items(path, **options))
    print_files(islice(items, skip, None if limit is None else skip + limit), raw=raw, as_json=as_json)
