"""The command ``shardkeep collect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardkeep.cli.options.collector import collector_options, print_keys
from shardkeep.cli.options.general import PATH, command, examples, json_option

if TYPE_CHECKING:
    from shardkeep.collector.protocol.settings import Durability
    from shardkeep.collector.server.events import Report


@command
@examples("shardkeep collect rows.h5", "shardkeep collect --new-key run.key")
@click.argument("path", type=PATH, required=False)
@collector_options
@json_option
def collect(
    path: str | None,
    listen: str | None,
    key_file: str | None,
    new_key: str | None,
    memory: int,
    durability: Durability,
    drain: float,
    until_done: bool,
    recover: bool,
    metrics_port: int | None,
    as_json: bool,
) -> None:
    """Write one HDF5 file for many processes that send it rows.

    Workers call shardkeep.hdf5.connect with the address, or with the folder of PATH. If an earlier
    collector of the file was killed, the file is first restored to its last commit. On SIGTERM or
    Ctrl-C the clients finish and the file is closed. Without --listen, only clients of this user
    on this host can connect, and the command ends when every rank has left. Use
    shardkeep.hdf5.open to read the file during the collection. If PATH is a URL, the file is on this
    host until the end, and then uploaded.
    """
    import sys

    from shardkeep.collector.protocol.keys import new_key as make_key
    from shardkeep.collector.protocol.settings import Settings
    from shardkeep.collector.server.events import Events
    from shardkeep.collector.server.process import recover_file, run
    from shardkeep.files.kinds.urls import local_path, path_or_url

    path = path and path_or_url(path)
    key_file, new_key = (one and local_path(one) for one in (key_file, new_key))
    if new_key is not None:
        print_keys(*make_key(new_key), as_json=as_json)
        key_file = key_file or new_key
    if path is None:
        if new_key is None:
            raise click.UsageError("missing argument PATH: the HDF5 file to write")
        return
    how: Report = "json" if as_json else ("progress" if sys.stderr.isatty() else "lines")
    events = Events(sys.stdout if as_json else sys.stderr, how)
    if recover:
        recover_file(path, events)
        return
    if metrics_port is not None:
        events.serve_metrics(metrics_port)
    end = until_done or listen is None
    run(Settings(path, listen or "", key_file, memory, durability, drain, end), events)
