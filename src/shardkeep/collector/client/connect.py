"""The function that connects to a collector by an address, a run folder or a file."""

from __future__ import annotations

import os

from shardkeep.collector.client.client import Client, ClientOptions, OnFull
from shardkeep.collector.protocol.address import is_address
from shardkeep.collector.protocol.remote_file import local_file
from shardkeep.collector.protocol.settings import check_memory, check_seconds
from shardkeep.errors import PlanError
from shardkeep.files.kinds.urls import local_path, path_or_url
from shardkeep.world import World, checked_world

__all__ = ["connect"]

_MEMORY_BYTES = 64 << 20


def connect(
    place: str | os.PathLike[str],
    world: World | None = None,
    *,
    timeout_s: float = 30.0,
    key_file: str | os.PathLike[str] | None = None,
    on_full: OnFull = "block",
    spill_dir: str | os.PathLike[str] | None = None,
    memory_bytes: int = _MEMORY_BYTES,
) -> Client:
    """Connect to a collector, which may start later.

    Parameters
    ----------
    place : str or os.PathLike
        An address (``ipc://…``, ``tcp://host:port``), the folder of the collector's file, or that file. The
        URL of a collector finds it only on its host.
    world : World, optional
        The rank and size of this process; ``World.detect()`` without it.
    timeout_s : float
        The seconds to wait for the collector now, and later in each call that waits.
    key_file : str or os.PathLike, optional
        The ``.client`` file of ``shardkeep collect --new-key``; needed for tcp. With a folder or a file as
        `place` it is found, if the key has the same path here as for the collector.
    on_full : {"block", "raise", "spill"}
        What `Client.append` does when `memory_bytes` of rows are not durable: "block" waits for as long as
        rows become durable, "raise" waits for `timeout_s` at most, and "spill" writes rows to a file in
        `spill_dir`, also without a collector.
    spill_dir : str or os.PathLike, optional
        A local folder. Rows that a killed client left there are sent by the next client of its rank.
    memory_bytes : int
        The most memory for rows of this client that are not durable.

    Returns
    -------
    Client
        The client. With ``on_full="spill"`` it may not be connected yet.

    Raises
    ------
    CollectorError
        No collector answered in time (the message names the place), or it refused this client.
    PlanError
        `timeout_s` is not between 0 seconds and 30 days, or another option is not valid.
    MissingExtraError
        pyzmq is not installed.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.hdf5 import Collector, connect
    >>> from shardkeep.world import World
    >>> path = os.path.join(tempfile.mkdtemp(), "all.h5")
    >>> with Collector(path) as collector, connect(path, World(rank=0, size=1)) as client:
    ...     client.append("loss", [0.5, 0.25])
    """
    world = checked_world(world)
    if on_full not in ("block", "raise", "spill"):
        raise PlanError(f'on_full must be "block", "raise" or "spill", not {on_full!r}')
    if (on_full == "spill") != (spill_dir is not None):
        raise PlanError('spill_dir= and on_full="spill" belong together: pass both or neither')
    options = ClientOptions(
        place=place if isinstance(place, str) and is_address(place) else local_file(path_or_url(place)),
        rank=world.rank,
        world_size=world.size,
        timeout_s=check_seconds("timeout_s", timeout_s),
        key_file=None if key_file is None else os.path.abspath(local_path(key_file)),
        on_full=on_full,
        spill_dir=None if spill_dir is None else os.path.abspath(local_path(spill_dir)),
        memory_bytes=check_memory("memory_bytes", memory_bytes),
    )
    client = Client(options)
    client._open_calls()
    return client
