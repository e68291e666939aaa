"""The command ``shardkeep info``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardkeep.cli.options.general import command, json_option, on_corrupt_option

if TYPE_CHECKING:
    from shardkeep.tfrecord.damage import OnCorrupt


@command
@click.argument("path", type=click.Path())
@on_corrupt_option
@json_option
def info(path: str, on_corrupt: OnCorrupt, as_json: bool) -> None:
    """Show the contents of a file or a run folder.

    PATH is a TFRecord file (compressed or not), an HDF5 file, or a folder of such files. Its kind
    is determined from its content, not from its name. The checksums of all records are verified.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.info import print_info
    from shardkeep.cli.output.progress import watched
    from shardkeep.jobs import info as inspect

    with watched("read") as progress:
        result = inspect(path, on_corrupt=on_corrupt, progress=progress)
    if as_json:
        print_json(result.to_dict())
    else:
        print_info(result)
