"""The command ``shardkeep bench``."""

from __future__ import annotations

import click

from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.options.general import PATH, command, examples, json_option


@command
@examples("shardkeep bench --storage .", "shardkeep bench --storage . --json")
@click.option("--storage", type=PATH, required=True, help="A folder on the storage.")
@click.option(
    "--hosts",
    type=click.IntRange(1, 2),
    default=1,
    show_default=True,
    help="2 to wait for a second host, where the same command runs with --second-host.",
)
@click.option("--second-host", is_flag=True, help="Be the second host of a bench with --hosts 2.")
@click.option(
    "--wait",
    "wait_s",
    type=float,
    default=120.0,
    show_default=True,
    help="Seconds to wait for the other host.",
)
@json_option
def bench(storage: str, hosts: int, second_host: bool, wait_s: float, as_json: bool) -> int:
    """Test a storage: which uses of Shardkeep are safe there.

    Locks, rename, exclusive creation, fsync, visibility, mmap and speed are measured with several
    processes, or with two hosts. Takes five seconds to three minutes and 128 MiB of space in a hidden folder,
    which is removed. The exit code is 3 if a use is not safe.
    """
    from shardkeep.cli.output.bench import print_bench
    from shardkeep.cli.output.console import print_json
    from shardkeep.diagnosis import assist_bench
    from shardkeep.diagnosis import bench as try_out

    if second_host:
        assist_bench(storage, wait_s=wait_s)
        if as_json:
            print_json({"storage": storage, "ok": True})
        else:
            click.echo("done; the first host has the report")
        return ExitCode.CLEAN
    report = try_out(storage, hosts=hosts, wait_s=wait_s)
    print_json(report.to_dict()) if as_json else print_bench(report)
    return ExitCode.CLEAN if report.ok else ExitCode.FINDINGS
