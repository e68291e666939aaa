"""The command ``shardkeep verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.options.engine import engine_options
from shardkeep.cli.options.general import PATH, command, examples, json_option

if TYPE_CHECKING:
    from concurrent.futures import Executor


@command
@examples(
    "shardkeep verify train.tfrecord",
    "shardkeep verify data run --json",
)
@click.argument("paths", nargs=-1, required=True, type=PATH)
@json_option
@engine_options
def verify(paths: tuple[str, ...], as_json: bool, executor: Executor | None) -> int:
    """Check files by their checksums, to the last byte.

    PATHS are TFRecord and event files, HDF5 files, folders of runs, or folders of such files. Both
    checksums of every record are checked. Worker files and merged files are compared with the
    hashes in them, virtual files together with their sources; other HDF5 files must be readable.
    Every file of a folder is checked, or counted as skipped; a data file that is empty, unreadable
    or replaced by something else, and a missing shard 00003-of-00008, are findings. The exit code
    is 3 if anything is damaged, missing or changed, and 2 if the only findings are parts that cannot
    be read here, since an HDF5 filter is not installed.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.progress import watched
    from shardkeep.cli.output.verify import print_verify
    from shardkeep.jobs import verify as verify_paths

    with watched("verify") as progress:
        report = verify_paths(paths, executor=executor, progress=progress)
    print_json(report.to_dict()) if as_json else print_verify(report)
    kinds = {finding.kind for finding in report.findings}
    if kinds - {"locked", "wrong-kind", "unsupported"}:
        return ExitCode.FINDINGS
    return ExitCode.LOCKED if "locked" in kinds else ExitCode.USAGE if kinds else ExitCode.CLEAN
