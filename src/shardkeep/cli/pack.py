"""``shardkeep pack``: images, tables, arrays and tar files become TFRecord shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardkeep.cli.options.general import command, exists_option, json_option
from shardkeep.cli.options.shards import compression_option, sharding_options, sources_and_output

if TYPE_CHECKING:
    from shardkeep.jobs.pack import Kind


def _dtypes(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read ``zip=bytes``, several times."""
    pairs = [value.rpartition("=") for value in values]
    for name, _, kind in pairs:
        if not name or kind not in ("int64", "float32", "bytes"):
            raise click.BadParameter(f"{name or kind!r}: it is COLUMN=int64, =float32 or =bytes")
    return {name: kind for name, _, kind in pairs}


@command
@click.argument("paths", nargs=-1, required=True, metavar="SOURCES... PATTERN", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="The pattern; then every argument is a source.")
@click.option(
    "--kind",
    type=click.Choice(["auto", "images", "csv", "parquet", "arrow", "numpy", "webdataset"]),
    default="auto",
    show_default=True,
    help="What the sources are; told from their content.",
)
@sharding_options
@click.option("--shuffle", type=click.IntRange(min=0), help="Store in an order drawn with this seed.")
@click.option("--labels", type=click.Path(), help="Number labels as this file does (see --labels-path).")
@click.option("--labels-path", type=click.Path(), help="Write the numbers of the labels there, as JSON.")
@click.option(
    "--dtype", "dtypes", multiple=True, callback=_dtypes, help="Type of a CSV column, as in zip=bytes."
)
@click.option(
    "--on-bad",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="Stop at a bad record, or leave it out and count it.",
)
@compression_option
@exists_option
@json_option
def pack(paths: tuple[str, ...], output: str | None, as_json: bool, kind: Kind, **options: Any) -> None:
    """Pack images, tables, arrays or tar files into TFRecord shards.

    SOURCES is a folder of PNG, JPEG and WebP files (a sub-folder for each label), CSV, Parquet or Arrow
    files, a .npy or .npz file, or WebDataset tar files. Images are stored as they are. PATTERN
    names the shards, as in 'train-{shard:05d}-of-{shards:05d}.tfrecord'; they appear together, or
    not at all, and are of at most 128 MiB if nothing else is said.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.progress import watched
    from shardkeep.cli.output.shards import print_pack
    from shardkeep.jobs import pack as pack_records

    sources, pattern = sources_and_output(paths, output, "PATTERN", options["exists"])
    options["dtypes"] = options["dtypes"] or None
    with watched("pack", at_end="sync to disk") as progress:
        report = pack_records(sources, pattern, kind=kind, progress=progress, **options)
    print_json(report.to_dict()) if as_json else print_pack(report)
