"""The command ``shardkeep info``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardkeep.cli.options.general import PATH, command, examples, json_option, on_corrupt_option

if TYPE_CHECKING:
    from shardkeep.tfrecord.damage import OnCorrupt


@command
@examples(
    "shardkeep info train.tfrecord",
    "shardkeep info run all.h5",
)
@click.argument("paths", nargs=-1, required=True, type=PATH)
@on_corrupt_option
@json_option
def info(paths: tuple[str, ...], on_corrupt: OnCorrupt, as_json: bool) -> None:
    """Show the contents of files, folders and runs.

    PATHS are TFRecord files (compressed or not), HDF5 files, folders of such files, or patterns.
    Their kind is determined from their content, not from their names. The checksums of all records
    of a TFRecord file are verified.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.info import print_info
    from shardkeep.cli.output.progress import watched
    from shardkeep.files.paths import expand
    from shardkeep.jobs import info as inspect

    results = []
    for number, path in enumerate(names := expand(paths)):
        with watched("read") as progress:
            results.append(inspect(path, on_corrupt=on_corrupt, progress=progress))
        if not as_json:
            click.echo("\n" * (number > 0), nl=False)
            print_info(results[-1])
    if as_json:
        print_json(results[0].to_dict() if len(names) == 1 else [one.to_dict() for one in results])
