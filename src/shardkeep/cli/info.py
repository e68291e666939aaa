"""``shardkeep info``: what is in a file or folder."""

from __future__ import annotations

import click

from shardkeep.cli.options.general import command, json_option


@command
@click.argument("path", type=click.Path())
@json_option
def info(path: str, as_json: bool) -> None:
    """Say what is in a file or a run folder.

    PATH is a TFRecord file (compressed or not), an HDF5 file, or a folder of such files. What it
    is, is told from its content and not from its name. Every record's checksum is verified.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.info import print_info
    from shardkeep.jobs import info as inspect

    result = inspect(path)
    if as_json:
        print_json(result.to_dict())
    else:
        print_info(result)
