"""`connect`: from an address, a run folder or a file to a client."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shardkeep.collector.client.client import Client, OnFull
from shardkeep.collector.protocol.settings import check_memory, check_seconds
from shardkeep.errors import PlanError

if TYPE_CHECKING:
    from shardkeep.world import World

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
        An address (``ipc://…``, ``tcp://host:port``), the folder of the collector's file, or that file.
    world : World, optional
        Whose `rank` and `size` count; ``World.detect()`` without it.
    timeout_s : float
        How long to wait for the collector now, and later whenever something waits for it.
    key_file : str or os.PathLike, optional
        The ``.client`` file of ``shardkeep collect --new-key``; needed for tcp. Found by itself where the
        folder of the collector's file is reached and the key lies where the collector has it.
    on_full : {"block", "raise", "spill"}
        What `append` does when `memory_bytes` of rows are on their way: wait for as long as the collector
        gets on; wait for `timeout_s` at most; or go on in a file in `spill_dir`, also while there is no
        collector at all.
    spill_dir : str or os.PathLike, optional
        A local folder. What a killed client left there is sent by the next one of its rank.
    memory_bytes : int
        Most rows of this client, in bytes, that are not durable yet.

    Raises
    ------
    CollectorError
        Nobody answered in time: the message says what was waited for. Or it refused this client.
    PlanError
        `timeout_s` is no number of seconds from 0 to 30 days, or another option makes no sense.
    MissingExtraError
        pyzmq is not installed.
    """
    if world is None:
        from shardkeep.world import World

        world = World.detect()
    if on_full not in ("block", "raise", "spill"):
        raise PlanError(f'on_full={on_full!r} means nothing here: use "block", "raise" or "spill"')
    if (on_full == "spill") != (spill_dir is not None):
        raise PlanError('spill_dir= and on_full="spill" belong together: give both or none')
    client = Client(
        place=os.fspath(place),
        rank=world.rank,
        world_size=world.size,
        timeout_s=check_seconds("timeout_s", timeout_s),
        key_file=None if key_file is None else os.path.abspath(key_file),
        on_full=on_full,
        spill_dir=None if spill_dir is None else os.path.abspath(spill_dir),
        memory_bytes=check_memory("memory_bytes", memory_bytes),
    )
    client._use()
    return client
