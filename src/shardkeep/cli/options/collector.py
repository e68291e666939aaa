"""Options of ``shardkeep collect``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from shardkeep.cli.options.general import PATH, choice_option
from shardkeep.cli.options.shards import SIZE

__all__ = ["collector_options", "print_keys"]

_F = TypeVar("_F", bound=Callable[..., Any])

_OPTIONS = [
    click.option("--listen", metavar="ADDRESS", help="Address: ipc:///path/of/a/socket or tcp://host:port."),
    click.option(
        "--key-file",
        type=PATH,
        help="Key that --new-key made, required for tcp. Clients use FILE.client.",
    ),
    click.option(
        "--new-key",
        metavar="FILE",
        type=PATH,
        help="Make a key: FILE for the collector and FILE.client for its clients.",
    ),
    click.option(
        "--memory",
        type=SIZE,
        default="256MiB",
        show_default=True,
        help="Memory for rows of all clients together.",
    ),
    choice_option(
        "--durability",
        ["fsync", "flush"],
        "Acknowledged rows survive a power failure (fsync) or a kill of processes (flush).",
    ),
    click.option(
        "--drain",
        default=10.0,
        show_default=True,
        help="Seconds for clients to finish after a signal.",
    ),
    click.option("--until-done", is_flag=True, help="End when every rank has left, also with --listen."),
    click.option("--recover", is_flag=True, help="Restore the file to its last commit and exit."),
    click.option(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        help="Serve Prometheus metrics on this port of the loopback interface.",
    ),
]


def collector_options(function: _F) -> _F:
    """Add the options of the address, keys, limits and end of a collector."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def print_keys(server: str, client: str, *, as_json: bool) -> None:
    """Print the path of each key file and its purpose."""
    if as_json:
        values = {"time": round(time.time(), 3), "event": "key", "server": server, "client": client}
        click.echo(json.dumps(values))
    else:
        click.echo(f"{server}: for the collector, --key-file\n{client}: for its clients, key_file=")
