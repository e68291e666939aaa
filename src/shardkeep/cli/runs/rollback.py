"""The command ``shardkeep rollback``."""

from __future__ import annotations

import sys

import click

from shardkeep.cli.options.general import PATH, command, examples, json_option


@command
@examples("shardkeep rollback run --step 10 --dry-run", "shardkeep rollback run --step 10")
@click.argument("run_dir", metavar="RUN", type=PATH)
@click.option(
    "--step",
    type=click.IntRange(min=-1),
    required=True,
    help="The step of the checkpoint; -1 removes all commits.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed without removing it.")
@json_option
def rollback(run_dir: str, step: int, dry_run: bool, as_json: bool) -> None:
    """Remove the commits of a run after a step, of every rank.

    RUN is the folder of a run of worker files. A run that starts again from a checkpoint would write
    the rows after it twice. Ranks that the next world does not have are rolled back, too. A run that
    a worker is writing is refused; nothing is removed then.
    """
    from shardkeep.cli.output.console import listing, print_json, print_parts
    from shardkeep.hdf5 import rollback as roll_back

    before = roll_back(run_dir, step=sys.maxsize, dry_run=True)
    after = roll_back(run_dir, step=step, dry_run=dry_run)
    ranks = [{"rank": rank, "before": before.get(rank), "after": left} for rank, left in after.items()]
    if as_json:
        print_json({"run": run_dir, "step": step, "dry_run": dry_run, "ranks": ranks})
        return
    table = listing(
        "rank", "newest commit before", "and after", right=["rank", "newest commit before", "and after"]
    )
    for one in ranks:
        table.add_row(*("none" if value is None else f"{value:,}" for value in one.values()))
    done = "nothing was removed (--dry-run)" if dry_run else f"commits after step {step} are removed"
    if all(one["before"] == one["after"] for one in ranks):
        done = f"nothing was removed: no commit is after step {step}"
    print_parts(table, done if ranks else "the run has no rank")
