"""The command ``shardkeep concat``."""

from __future__ import annotations

from typing import Any

import click

from shardkeep.cli.options.engine import engine_options
from shardkeep.cli.options.general import PATH, command, examples
from shardkeep.cli.options.paths import data_files
from shardkeep.cli.options.shards import copy_options, sources_and_output


@command
@examples(
    "shardkeep concat 'train-*.tfrecord' all.tfrecord",
    "shardkeep concat --on-corrupt skip damaged.tfrecord whole.tfrecord",
)
@click.argument("paths", nargs=-1, required=True, metavar="SOURCES... OUTPUT", type=PATH)
@click.option("-o", "--output", type=PATH, help="The new file; then all arguments are sources.")
@copy_options
@engine_options
def concat(paths: tuple[str, ...], output: str | None, as_json: bool, **options: Any) -> None:
    """Concatenate the records of TFRecord files.

    SOURCES may be compressed. A file that is damaged, truncated or of another kind is an error, and
    OUTPUT then does not appear.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.progress import watched
    from shardkeep.cli.output.shards import print_split
    from shardkeep.jobs import concat as join

    sources, name = sources_and_output(paths, output, "OUTPUT", options["exists"])
    with watched("concat") as progress:
        report = join(data_files(sources, "tfrecord"), name, progress=progress, **options)
    print_json(report.to_dict()) if as_json else print_split(report)
