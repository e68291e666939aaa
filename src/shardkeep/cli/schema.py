"""The command ``shardkeep schema``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardkeep.cli.options.general import PATH, command, examples, json_option, on_corrupt_option
from shardkeep.cli.options.paths import data_files

if TYPE_CHECKING:
    from shardkeep.tfrecord.damage import OnCorrupt


@command
@examples(
    "shardkeep schema 'train-*.tfrecord'",
    "shardkeep schema data --all --json",
)
@click.argument("paths", nargs=-1, required=True, type=PATH)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Number of records to inspect, over all files.",
)
@click.option("--all", "every", is_flag=True, help="Inspect every record.")
@on_corrupt_option
@json_option
def schema(paths: tuple[str, ...], sample: int, every: bool, on_corrupt: OnCorrupt, as_json: bool) -> None:
    """Infer the features of tf.train.Example records.

    PATHS are TFRecord files, folders or patterns. Prints Python source for the argument features=, with
    fixed, ragged and image features, and the values that were seen in comments. A feature whose
    kind differs between two records is an error that names both.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.progress import watched
    from shardkeep.tfrecord import infer_schema

    files = data_files(paths, "tfrecord")
    with watched("read") as progress:
        found = infer_schema(files, None if every else sample, on_corrupt=on_corrupt, progress=progress)
    print_json(found.to_dict()) if as_json else click.echo(found.source())
