"""`Finder`: where the collector of a run folder, a file or an address is, and the key for it."""

from __future__ import annotations

import os
import socket

from shardkeep.collector.protocol.address import is_address, socket_identity
from shardkeep.collector.protocol.address_file import find_note
from shardkeep.collector.protocol.keys import read_client_key
from shardkeep.collector.protocol.zeromq import Target
from shardkeep.errors import CollectorError

__all__ = ["Finder"]


class Finder:
    """Finds address and key, each time anew: a collector that was restarted may have moved."""

    def __init__(self, place: str, key_file: str | None) -> None:
        self._place = place
        self._key_file = key_file
        looked_for = (
            os.path.join(place, "*.collector.json") if os.path.isdir(place) else f"{place}.collector.json"
        )
        self.what = place if is_address(place) else f"{place!r} (looking for {looked_for!r})"
        if is_address(place):
            _check_key(place, key_file)

    def __call__(self) -> Target | None:
        """Look once; None while there is no collector."""
        if is_address(self._place):
            return self._target(self._place, self._key_file)
        note = find_note(self._place)
        if note is None:
            return None
        address = note.address
        here = note.host == socket.gethostname()
        if address.startswith("ipc://") and not here:
            message = (
                f"the collector of {note.path!r} runs on host {note.host!r} and takes only clients there"
            )
            raise CollectorError(f"{message}: start it with --listen tcp://… and a key", path=note.path)
        for wildcard in ("//0.0.0.0:", "//[::]:"):
            address = address.replace(wildcard, f"//{'127.0.0.1' if here else note.host}:")
        return self._target(address, self._key_file or note.client_key)

    def _target(self, address: str, key_file: str | None) -> Target | None:
        _check_key(address, key_file)
        key = None if key_file is None else read_client_key(key_file)
        if not address.startswith("ipc://"):
            return Target(address, key)
        identity = socket_identity(address)
        return None if identity is None else Target(address, key, identity)


def _check_key(address: str, key_file: str | None) -> None:
    if address.startswith("tcp://") and key_file is None:
        message = f"{address!r} needs the key of the collector, without which anybody could answer there"
        raise CollectorError(f"{message}: pass key_file=, the .client file of shardkeep collect --new-key")
