"""The command ``shardkeep merge``."""

from __future__ import annotations

import warnings
from typing import Any

import click

from shardkeep.cli.options.engine import engine_options
from shardkeep.cli.options.general import PATH, choice_option, command, examples, exists_option, json_option
from shardkeep.cli.options.shards import sources_and_output


@command
@examples(
    "shardkeep merge run merged.h5",
    "shardkeep merge run by-step.h5 --order-by step",
)
@click.argument("paths", nargs=-1, required=True, metavar="SOURCES... OUTPUT", type=PATH)
@click.option("-o", "--output", type=PATH, help="The merged file; then all arguments are sources.")
@choice_option(
    "--mode", ["auto", "copy", "virtual"], "Copy the rows (auto does so), or refer to the sources."
)
@click.option(
    "--order-by",
    default="rank",
    show_default=True,
    help='Order of the rows: "rank", "step" (then rank), or a dataset of integer keys.',
)
@choice_option(
    "--incomplete",
    ["refuse", "warn", "allow"],
    "What to do if a rank is missing or ends before the others; the merged file keeps it.",
)
@choice_option(
    "--on-mismatch",
    ["refuse", "promote"],
    "What to do if types differ; promote widens them if no value changes.",
)
@choice_option("--check", ["sample", "full"], "Which rows to compare with the sources, by value.")
@click.option("--dry-run", is_flag=True, help="Print the plan and its result without writing.")
@exists_option
@json_option
@engine_options
def merge(paths: tuple[str, ...], output: str | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Merge the HDF5 files of many workers into one.

    SOURCES is the folder of a run, or HDF5 files. A source that is missing, damaged, too short or
    of another type is an error; it never becomes fill values, and OUTPUT then does not appear.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.merge import print_merge
    from shardkeep.cli.output.progress import watched
    from shardkeep.hdf5 import merge as merge_files

    sources, output = sources_and_output(paths, output, "OUTPUT", options["exists"])
    source = sources[0] if len(sources) == 1 else sources
    if dry_run:
        plan = merge_files(source, output, dry_run=True, **options)
        print_json(plan.to_dict()) if as_json else click.echo(plan)
        return
    with warnings.catch_warnings(), watched("merge") as progress:
        warnings.simplefilter("ignore", RuntimeWarning)  # said below, from the report
        report = merge_files(source, output, progress=progress, **options)
    print_json(report.to_dict()) if as_json else print_merge(report)
    if options["incomplete"] == "warn":
        for finding in report.findings:
            click.echo(f"shardkeep: warning: {finding}", err=True)
