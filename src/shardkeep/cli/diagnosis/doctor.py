"""The command ``shardkeep doctor``."""

from __future__ import annotations

import click

from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.options.general import PATH, command, examples, json_option


@command
@examples("shardkeep doctor data run --world 8", "shardkeep doctor --html doctor.html")
@click.argument("paths", nargs=-1, type=PATH)
@click.option("--world", type=click.IntRange(1), help="Ranks of the job; by default those of the launcher.")
@click.option("--html", type=PATH, help="Write the report, with all that was measured, as a page.")
@click.option("--all", "show_all", is_flag=True, help="Print notes and all that was measured, too.")
@json_option
def doctor(paths: tuple[str, ...], world: int | None, html: str | None, show_all: bool, as_json: bool) -> int:
    """Find what would make a training job fail on this machine.

    PATHS are the files and folders of the job: its shards, and where it writes. Limits of processes
    and memory, the file systems of the paths, locks, versions and the files themselves are checked
    for the ranks of the job. Nothing is changed; scratch files test each file system and are
    removed. Ends in at most ten seconds. The exit code is 3 if there are errors or warnings.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.doctor import doctor_page, print_doctor
    from shardkeep.diagnosis import doctor as examine

    report = examine(paths, world)
    if html is not None:
        from shardkeep.files import publish

        with publish(html, exists="replace") as file:
            file.write(doctor_page(report).encode())
    print_json(report.to_dict()) if as_json else print_doctor(report, show_all=show_all)
    return ExitCode.CLEAN if report.ok else ExitCode.FINDINGS
