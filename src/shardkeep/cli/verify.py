"""``shardkeep verify``: is every byte what was written?"""

from __future__ import annotations

import click

from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.options.general import command, json_option


@command
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@json_option
def verify(paths: tuple[str, ...], as_json: bool) -> int:
    """Check files by their checksums, to the last byte.

    PATHS are TFRecord and event files (both checksums of every record), HDF5 files (worker files
    and merged ones by the hashes that they keep, with the sources of a virtual one; others must
    be readable), folders of runs, or folders of such files. The exit code is 3 if anything is
    damaged, missing or changed.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.progress import watched
    from shardkeep.cli.output.verify import print_verify
    from shardkeep.jobs import verify as verify_paths

    with watched("verify") as progress:
        report = verify_paths(paths, progress=progress)
    if as_json:
        print_json(report.to_dict())
    else:
        print_verify(report)
    return ExitCode.CLEAN if report.ok else ExitCode.FINDINGS
