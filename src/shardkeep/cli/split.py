"""The command ``shardkeep split``."""

from __future__ import annotations

from typing import Any

import click

from shardkeep.cli.options.engine import engine_options
from shardkeep.cli.options.general import PATH, choice_option, command, examples
from shardkeep.cli.options.paths import data_files
from shardkeep.cli.options.shards import copy_options, sharding_options, sources_and_output


@command
@examples(
    "shardkeep split train.tfrecord 'part-{shard:05d}-of-{shards:05d}.tfrecord' --shards 4",
    "shardkeep split data 'small-{shard:05d}.tfrecord' --shard-bytes 128MiB",
)
@click.argument("paths", nargs=-1, required=True, metavar="SOURCES... PATTERN", type=PATH)
@click.option("-o", "--output", type=PATH, help="The pattern; then all arguments are sources.")
@sharding_options
@choice_option(
    "--mode",
    ["contiguous", "round-robin", "balanced"],
    "Consecutive records, records in turn, or equal sizes in bytes.",
)
@copy_options
@engine_options
def split(paths: tuple[str, ...], output: str | None, as_json: bool, **options: Any) -> None:
    """Divide the records of TFRecord files into other files.

    PATTERN is the name of the new files, such as 'train-{shard:05d}-of-{shards:05d}.tfrecord'. They
    appear together or not at all. Frames are copied unchanged and read back before the files get
    their names: every checksum must match. Pass one of --shards, --shard-bytes, --shard-records.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.progress import watched
    from shardkeep.cli.output.shards import print_split
    from shardkeep.jobs import split as divide

    sources, pattern = sources_and_output(paths, output, "PATTERN", options["exists"])
    with watched("split") as progress:
        report = divide(data_files(sources, "tfrecord"), pattern, progress=progress, **options)
    print_json(report.to_dict()) if as_json else print_split(report)
