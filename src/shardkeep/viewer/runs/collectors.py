"""Collectors of the files in a folder, from the files next to them: no message is sent to a collector."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from shardkeep.collector.protocol.address_file import read_address_file
from shardkeep.errors import ShardkeepError
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.locking.holders import is_locked
from shardkeep.viewer.hdf5.processes import ask
from shardkeep.viewer.locations import Location

__all__ = ["ClientState", "CollectorState", "collectors_in"]

_SUFFIX = ".collector.json"
_CLIENTS = "/_collector/clients"
_MOST = 20
_FATES = {"0": "may send more", "1": "has left", "2": "of an earlier run"}


@dataclass(frozen=True)
class ClientState:
    """A client according to the newest commit in the file: what it sent, and whether it may send more."""

    rank: int
    world_size: int
    newest_batch: int
    rows: int
    fate: str


@dataclass(frozen=True)
class CollectorState:
    """State of one collector.

    Attributes
    ----------
    location : Location
        Of its file.
    process : str
    is_running : bool
        False if it was killed. One on another host counts as running.
    size_bytes : int
        Of the file.
    log_bytes : int
        Of the log of commits that are durable and not in the file yet.
    age_s : float or None
        Since the last commit.
    clients : list of ClientState
        The newest clients, without the batches of the last seconds.
    client_count : int
    problem : str or None
    """

    location: Location
    process: str
    is_running: bool
    size_bytes: int
    log_bytes: int
    age_s: float | None
    clients: list[ClientState]
    client_count: int
    problem: str | None


def collectors_in(folder: Location) -> list[CollectorState]:
    """Return the collectors of the files in a folder."""
    found: list[CollectorState] = []
    for name in sorted(os.listdir(folder.path)):
        if name.endswith(_SUFFIX) and len(found) < _MOST:
            state = _state(folder.child(name.removesuffix(_SUFFIX)))
            if state is not None:
                found.append(state)
    return found


def _state(location: Location) -> CollectorState | None:
    path = location.path
    try:
        record = read_address_file(path + _SUFFIX)
        size_bytes = os.stat(path).st_size
    except (ShardkeepError, OSError):
        return None  # of another user, or it ended at this moment
    if record is None or location.leads_out:
        return None
    log_bytes, age_s = 0, None
    try:
        status = os.stat(log_path(path))
        log_bytes, age_s = status.st_size, max(0.0, time.time() - status.st_mtime)
    except OSError:
        pass
    is_here = record.host == os.uname().nodename
    is_running = not is_here or is_locked(path + ".lock")
    clients: list[ClientState] = []
    count, problem = 0, None
    try:
        rows = ask(location, _CLIENTS, "rows")["rows"]
        if rows is not None and rows["total"] > len(rows["rows"]):
            rows = ask(location, _CLIENTS, "rows", first=rows["total"] - len(rows["rows"]))["rows"]
        if rows is not None:
            clients, count = [_client(rows["columns"], row) for row in rows["rows"]], rows["total"]
    except (ShardkeepError, OSError) as error:
        problem = str(error)
    process = f"pid {record.pid} on {record.host}"
    return CollectorState(
        location, process, is_running, size_bytes, log_bytes, age_s, clients, count, problem
    )


def _client(columns: list[str], row: list[str]) -> ClientState:
    values = dict(zip(columns, row, strict=True))
    return ClientState(
        rank=int(values["rank"]),
        world_size=int(values["world_size"]),
        newest_batch=int(values["sequence"]),
        rows=int(values["rows"]),
        fate=_FATES.get(values["closed"], values["closed"]),
    )
