"""The command ``shardkeep pack``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardkeep.cli.options.engine import engine_options
from shardkeep.cli.options.general import PATH, choice_option, command, examples, exists_option, json_option
from shardkeep.cli.options.shards import compression_option, sharding_options, sources_and_output

if TYPE_CHECKING:
    from shardkeep.jobs.pack_sources.open import Kind


def _dtypes(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return the types of columns that are written like ``zip=bytes``."""
    for name, _, kind in (pairs := [value.rpartition("=") for value in values]):
        if not name or kind not in ("int64", "float32", "bytes"):
            raise click.BadParameter(f"{name or kind!r} must be COLUMN=int64, =float32 or =bytes")
    return {name: kind for name, _, kind in pairs}


@command
@examples(
    "shardkeep pack photos 'photos-{shard:05d}-of-{shards:05d}.tfrecord'",
    "shardkeep pack table.csv 'rows-{shard:05d}.tfrecord' --dtype zip=bytes",
)
@click.argument("paths", nargs=-1, required=True, metavar="SOURCES... PATTERN", type=PATH)
@click.option("-o", "--output", type=PATH, help="The pattern; then all arguments are sources.")
@choice_option(
    "--kind",
    ["auto", "images", "csv", "parquet", "arrow", "numpy", "webdataset"],
    "Kind of the sources; auto determines it from their content.",
)
@sharding_options
@click.option("--shuffle", type=click.IntRange(min=0), help="Shuffle the records with this seed.")
@click.option("--labels", type=PATH, help="Numbers of labels, from --labels-path of another set.")
@click.option("--labels-path", type=PATH, help="Write the numbers of labels there, as JSON.")
@click.option(
    "--dtype", "dtypes", multiple=True, callback=_dtypes, help="Type of a CSV column, such as zip=bytes."
)
@choice_option("--on-bad", ["raise", "skip"], "Fail at a bad record, or skip and count it.")
@compression_option
@exists_option
@json_option
@engine_options
def pack(paths: tuple[str, ...], output: str | None, as_json: bool, kind: Kind, **options: Any) -> None:
    """Pack images, tables, arrays or tar files into TFRecord shards.

    SOURCES is a folder of PNG, JPEG and WebP files (a sub-folder for each label), CSV, Parquet,
    Arrow or NumPy files, or WebDataset tar files. Images are not decoded. PATTERN is the name of the
    shards, such as 'train-{shard:05d}-of-{shards:05d}.tfrecord'. They appear together or not at
    all, with at most 128 MiB each by default.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.progress import watched
    from shardkeep.cli.output.shards import print_pack
    from shardkeep.jobs import pack as pack_records

    sources, pattern = sources_and_output(paths, output, "PATTERN", options["exists"])
    options["dtypes"] = options["dtypes"] or None
    with watched("pack") as progress:
        report = pack_records(sources, pattern, kind=kind, progress=progress, **options)
    print_json(report.to_dict()) if as_json else print_pack(report)
