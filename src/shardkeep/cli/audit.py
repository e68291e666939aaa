"""The command ``shardkeep audit``."""

from __future__ import annotations

import re
from typing import Any

import click

from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.options.engine import engine_options
from shardkeep.cli.options.general import PATH, command, examples, json_option

_MOST_EPOCHS = 100_000


def _epochs(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    """Read ``2`` or ``0,1`` or ``0-2``: epoch numbers, and ranges with both ends."""
    if value is None:
        return None
    numbers: set[int] = set()
    for part in value.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part, re.ASCII)
        if found is None:
            raise click.BadParameter(f"{value!r} must be like 2, 0,1 or 0-2")
        epochs = range(int(found[1]), int(found[2] or found[1]) + 1)
        if len(epochs) > _MOST_EPOCHS:
            raise click.BadParameter(f"{part} is more than {_MOST_EPOCHS:,} epochs")
        numbers.update(epochs)
    return tuple(sorted(numbers))


@command
@examples(
    "shardkeep audit run",
    "shardkeep audit receipts --epochs 0",
)
@click.argument("paths", nargs=-1, required=True, type=PATH)
@click.option("--epochs", callback=_epochs, help="Audit these epochs (2 or 0,1 or 0-2) instead of all.")
@click.option("--data", multiple=True, help="Shards of the training, if their description is lost.")
@json_option
@engine_options
def audit(paths: tuple[str, ...], data: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Prove from receipts that every record was used exactly once.

    PATHS are receipts (JSON files), folders of runs, worker files or merged HDF5 files. The exit
    code is 3 if a record of an epoch is missing or was used twice, or if receipts contradict each
    other.
    """
    from shardkeep.cli.output.audit import print_audit
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.progress import watched
    from shardkeep.jobs import audit as audit_paths

    with watched("audit") as progress:
        report = audit_paths(paths, data=data or None, progress=progress, **options)
    print_json(report.to_dict()) if as_json else print_audit(report)
    return ExitCode.CLEAN if report.ok else ExitCode.FINDINGS
