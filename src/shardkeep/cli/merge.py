"""``shardkeep merge``: the files of many workers become one."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import click

from shardkeep.cli.options import command, exists_option, json_option

if TYPE_CHECKING:
    from shardkeep.files.publish import Exists
    from shardkeep.hdf5.merge import Incomplete
    from shardkeep.hdf5.merge_plan import Mode


@command
@click.argument("paths", nargs=-1, required=True, metavar="SOURCES... OUTPUT", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="The merged file; then every argument is a source.")
@click.option(
    "--mode",
    type=click.Choice(["auto", "copy", "virtual"]),
    default="auto",
    show_default=True,
    help="Copy the rows, point at the sources (virtual), or decide (auto).",
)
@click.option(
    "--incomplete",
    type=click.Choice(["warn", "refuse", "allow"]),
    default="warn",
    show_default=True,
    help="What to do where a rank of the run is missing, or ends before the others.",
)
@exists_option
@json_option
def merge(
    paths: tuple[str, ...],
    output: str | None,
    mode: Mode,
    incomplete: Incomplete,
    exists: Exists,
    as_json: bool,
) -> None:
    """Merge the HDF5 files of many workers into one.

    SOURCES is the folder of a run, or worker files. A source that is missing, damaged, too short
    or of another type is an error, never fill values, and OUTPUT then does not appear.
    """
    from shardkeep.cli.output import print_json, print_merge
    from shardkeep.hdf5 import merge as merge_files

    if output is None:
        if len(paths) < 2:
            raise click.UsageError("give at least one source and the output: SOURCES... OUTPUT")
        *sources, output = paths
    else:
        sources = list(paths)
    source = sources[0] if len(sources) == 1 else sources
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # said below, from the report
        report = merge_files(source, output, mode=mode, exists=exists, incomplete=incomplete)
    if as_json:
        print_json(report.to_dict())
    else:
        print_merge(report)
    if incomplete == "warn":
        for finding in report.findings:
            click.echo(f"shardkeep: warning: {finding}", err=True)
