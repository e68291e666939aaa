"""Shared memory between a client and the collector on one host, for large rows without a copy.

The collector makes an anonymous file (``memfd_create``), of which no name remains after its end, and
sends the client its path ``/proc/PID/fd/N``. Only the same user can open it. If it cannot be opened (another
container, not Linux), rows are sent through the socket.

Its length is sealed, so neither side can truncate it, which would end the other process with SIGBUS. Before
the client writes a byte, it checks that its descriptor is such memory and not a file of its user: only memory
from ``memfd_create`` can have these seals (fcntl(2), "File Sealing").
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import re
import stat
from typing import Any

import numpy as np

__all__ = ["SLOT_BYTES", "ClientSlots", "ServerSlots", "SlotBudget"]

SLOT_BYTES = 512 * 1024
# For one client. With more, more pages are touched for the first time, but not more slots are in use.
_MOST_SLOTS = 16
_PLACE = re.compile(r"/proc/[1-9]\d{0,9}/fd/\d{1,9}")


def _seals() -> int:
    """Return the seals of the memory, which fix its length and the seals."""
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SlotBudget:
    """A budget of shared memory for all clients."""

    def __init__(self, size: int) -> None:
        self._left = size

    def open(self) -> ServerSlots | None:
        """Return slots for another client, at most half of the rest; None if that is too little."""
        count = min(_MOST_SLOTS, self._left // (2 * SLOT_BYTES))
        if count < 2 or not hasattr(os, "memfd_create"):
            return None
        with contextlib.suppress(OSError):
            slots = ServerSlots(count)
            self._left -= slots.bytes
            return slots
        return None

    def close(self, slots: ServerSlots) -> None:
        """Close slots, and return their memory to the budget."""
        self._left += slots.bytes
        slots.close()


class ServerSlots:
    """The slots of one client, on the collector's side.

    Parameters
    ----------
    count : int
        The number of slots of `SLOT_BYTES`.
    """

    def __init__(self, count: int) -> None:
        self.bytes = count * SLOT_BYTES
        self._fd = os.memfd_create("shardkeep-slots", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, self.bytes)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _seals())
            self._view = memoryview(mmap.mmap(self._fd, self.bytes, prot=mmap.PROT_READ))
        except BaseException:
            os.close(self._fd)
            raise
        inode = os.fstat(self._fd).st_ino
        self.address = {"path": f"/proc/{os.getpid()}/fd/{self._fd}", "inode": inode, "count": count}

    def read(self, offset: int, size: int) -> memoryview:
        """Return some bytes; IndexError if they are not inside."""
        if offset < 0 or size < 0 or offset + size > self.bytes:
            raise IndexError(f"bytes {offset} to {offset + size} are not in the shared memory")
        return self._view[offset : offset + size]

    def close(self) -> None:
        """Close the memory; it is free once the client and every view of it have been closed too."""
        # Dropped and not closed: an error that is being handled may still refer to a view.
        self._view = memoryview(b"")
        os.close(self._fd)


class ClientSlots:
    """The slots of one client, on its side: a pool of byte arrays.

    Raises
    ------
    OSError
        It cannot be opened, or is not sealed memory of this user.
    KeyError, ValueError, TypeError
        The address is not one of `ServerSlots`.
    """

    def __init__(self, address: dict[str, Any]) -> None:
        path, inode, count = str(address["path"]), int(address["inode"]), int(address["count"])
        if _PLACE.fullmatch(path) is None or not 0 < count <= _MOST_SLOTS:
            raise ValueError(f"{path!r} with {count} slots is not a place of shared memory")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            size = count * SLOT_BYTES
            _check_memory(fd, path, inode, size)
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._count = int(address["count"])
        self._free = list(range(self._count))

    def take(self) -> tuple[int, np.ndarray[Any, np.dtype[np.uint8]]] | None:
        """Return a free slot's offset and bytes; None if there is none."""
        if not self._free:
            return None
        offset = self._free.pop() * SLOT_BYTES
        return offset, self._bytes[offset : offset + SLOT_BYTES]

    @property
    def has_free(self) -> bool:
        """Whether a slot is free."""
        return bool(self._free)

    @property
    def are_short(self) -> bool:
        """Whether half of them or more are in use."""
        return 2 * len(self._free) <= self._count

    def reclaim(self, held: list[int]) -> None:
        """Free every slot that is not in `held`: an interrupted call may have lost a slot."""
        if len(self._free) + len(held) < self._count:
            places = {offset // SLOT_BYTES for offset in held}
            self._free = [place for place in range(self._count) if place not in places]

    def give_back(self, offset: int) -> None:
        """Free a slot."""
        self._free.append(offset // SLOT_BYTES)


def _check_memory(fd: int, path: str, inode: int, size: int) -> None:
    """Raise `OSError` unless a descriptor is memory that `ServerSlots` has made."""
    found = os.fstat(fd)
    same = stat.S_ISREG(found.st_mode)
    same = same and (found.st_ino, found.st_size, found.st_uid) == (inode, size, os.geteuid())
    # F_GET_SEALS fails for a file on a disk; a file in a tmpfs has only the last of these seals.
    if not same or fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _seals() != _seals():
        raise OSError(f"{path!r} is not sealed memory of a collector of this user")
