"""The command ``shardkeep demo``."""

from __future__ import annotations

import click

from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.options.general import PATH, command, examples, json_option


@command
@examples(
    "shardkeep demo",
    "shardkeep demo --workers 2 --epochs 2 --output small-demo",
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=4, show_default=True, help="Processes to train with."
)
@click.option(
    "--epochs", type=click.IntRange(1, 10_000), default=3, show_default=True, help="Passes over the data."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed; equal seeds give equal results.",
)
@click.option(
    "--output",
    type=PATH,
    default="./shardkeep-demo",
    show_default=True,
    help="Folder for shards, worker files, results.h5 and report.html.",
)
@json_option
def demo(workers: int, epochs: int, seed: int, output: str, as_json: bool) -> int:
    """Train, kill a worker, resume, and prove that every record was used.

    Packs 1,797 handwritten digits into TFRecord shards, trains a small classifier in several
    processes, kills one of them with SIGKILL in the second epoch, resumes with one fewer from the
    last checkpoint, merges the workers' HDF5 files and proves that every record was used exactly
    once in every epoch. Needs no server and no framework, but pip install "shardkeep[demo]". The
    exit code is 3 if a check fails.
    """
    import json

    from rich.console import Console

    from shardkeep.demo import run
    from shardkeep.demo.console import print_report

    console = None if as_json else Console()
    report = run(output, workers=workers, epochs=epochs, seed=seed, progress=console)
    if console is None:
        click.echo(json.dumps(report.to_dict(), indent=1))
    else:
        print_report(console, report)
    return ExitCode.CLEAN if report.ok else ExitCode.FINDINGS
