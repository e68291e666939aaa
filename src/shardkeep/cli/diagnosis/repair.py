"""The command ``shardkeep repair``."""

from __future__ import annotations

from typing import Any

import click

from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.options.engine import engine_options
from shardkeep.cli.options.general import PATH, command, examples, exists_option, json_option


@command
@examples(
    "shardkeep repair train.tfrecord repaired.tfrecord",
    "shardkeep repair data repaired --html repair.html",
)
@click.argument("path", metavar="IN", type=PATH)
@click.argument("output", metavar="[OUT]", required=False, type=PATH)
@click.option("--dry-run", is_flag=True, help="Report only, and write no new file.")
@exists_option
@click.option("--html", type=PATH, help="Write the report as a page, with a map of each file.")
@json_option
@engine_options
def repair(path: str, output: str | None, html: str | None, as_json: bool, **options: Any) -> int:
    """Write what is whole or correctable in damaged files to new files.

    IN is a TFRecord, event or HDF5 file, the folder of a run, or a folder of such files, whose damaged
    files get new ones of the same names in the folder OUT. IN is only read. Each part is reported as
    kept, repaired, unchecked (the file has no checksum of it) or lost. Both may be URLs. The exit
    code is 3 if anything is lost.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.progress import watched
    from shardkeep.cli.output.repair import print_repair
    from shardkeep.cli.output.repair_page import write_page
    from shardkeep.jobs import repair as repair_paths
    from shardkeep.jobs.salvage.outputs import check_page

    if html is not None:
        check_page(html, path, output)
    with watched("repair") as progress:
        report = repair_paths(path, output, progress=progress, **options)
    if html is not None:
        write_page(html, report)
    print_json(report.to_dict()) if as_json else print_repair(report, html)
    return ExitCode.CLEAN if report.ok else ExitCode.FINDINGS
