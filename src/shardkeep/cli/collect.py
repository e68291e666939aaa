"""``shardkeep collect``: the one process that writes an HDF5 file for many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardkeep.cli.options import command, json_option

if TYPE_CHECKING:
    from shardkeep.hdf5.collect.events import Report
    from shardkeep.hdf5.collect.settings import Durability

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _as_bytes(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    text = value.strip().upper().removesuffix("IB").removesuffix("B")
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS and text[-1:] else (text, "")
    try:
        return int(float(number) * _UNITS[unit])
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is no size: write 256MB or 1GB") from None


@command
@click.argument("path", type=click.Path(), required=False)
@click.option("--listen", metavar="ADDRESS", help="ipc:///path/of/a/socket or tcp://host:port (with a key).")
@click.option(
    "--key-file", type=click.Path(), help="The collector's key, which its clients have the half of."
)
@click.option(
    "--new-key", metavar="FILE", type=click.Path(), help="Make a key in FILE and FILE.client, and end."
)
@click.option(
    "--memory", default="256MB", show_default=True, callback=_as_bytes, help="Most memory for rows under way."
)
@click.option(
    "--durability",
    type=click.Choice(["fsync", "flush"]),
    default="fsync",
    show_default=True,
    help="Acknowledged rows survive a power cut (fsync), or the death of processes (flush).",
)
@click.option(
    "--drain", default=10.0, show_default=True, help="Seconds that clients have to finish at the end."
)
@click.option("--until-done", is_flag=True, help="End when every rank has left.")
@click.option("--recover", is_flag=True, help="Bring the file to its last commit, and end.")
@click.option(
    "--metrics-port", type=int, help="Serve Prometheus metrics on this port of the loopback interface."
)
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

    Workers call shardkeep.hdf5.connect with the address, or with the folder of PATH. A file whose collector
    was killed is brought to its last commit first. SIGTERM or Ctrl-C: clients finish, the file is closed.
    Without --listen it takes clients of this user and host, and ends when every rank has left.
    """
    import os
    import sys

    from shardkeep.hdf5.collect.events import Events
    from shardkeep.hdf5.collect.keys import new_key as make_key
    from shardkeep.hdf5.collect.running import run
    from shardkeep.hdf5.collect.settings import Settings
    from shardkeep.hdf5.collect.store import Store

    if new_key is not None:
        server, client = make_key(new_key)
        click.echo(f"{server}: for the collector, --key-file\n{client}: for its clients, key_file=")
        if path is None:
            return
        key_file = key_file or new_key
    if path is None:
        raise click.UsageError("give the HDF5 file to write: PATH")
    how: Report = "json" if as_json else ("progress" if sys.stderr.isatty() else "lines")
    out = sys.stdout if as_json else sys.stderr
    if recover:
        events = Events(out, how)
        store = Store(path, synced=True)
        events.opened(store)
        rows = store.rows
        store.close()
        events.finished({"path": path, "rows": rows})
        return
    metrics = None
    if metrics_port is not None:
        from shardkeep.hdf5.collect.metrics import serve

        metrics = serve(metrics_port)
    settings = Settings(
        path=os.path.abspath(path),
        address=listen or "",
        key_file=key_file,
        memory_bytes=memory,
        durability=durability,
        drain_s=drain,
        until_done=until_done or listen is None,
    )
    run(settings, Events(out, how, metrics=metrics))
