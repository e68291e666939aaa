"""The search for the collector of an address, a run folder or a file, and for the key."""

from __future__ import annotations

import os
import socket

from shardkeep._paths_in_messages import shown
from shardkeep.collector.client.connection import Target
from shardkeep.collector.protocol.address import is_address, socket_identity
from shardkeep.collector.protocol.address_file import find_address_file
from shardkeep.collector.protocol.keys import read_client_key
from shardkeep.errors import CollectorError
from shardkeep.files.kinds.urls import is_url

__all__ = ["Finder"]


class Finder:
    """A search that is repeated after each interruption: a collector that was restarted may have moved.

    Parameters
    ----------
    place : str
        An address, the folder of a collector's file, or the file.
    key_file : str or None
        The file with the client's key; None if the address file names it.
    """

    def __init__(self, place: str, key_file: str | None) -> None:
        self._place = place
        self._key_file = key_file
        if is_address(place):
            self.description = place
            _check_key(place, key_file)
        else:
            file = os.path.join(place, "*") if os.path.isdir(place) else place
            where = f"searching for {file + '.collector.json'!r}"
            if is_url(shown(place)):
                where = "searching on this host; on another one, pass its address, tcp://…"
            self.description = f"{place!r} ({where})"

    def __call__(self) -> Target | None:
        """Search once; return None if no collector is found."""
        if is_address(self._place):
            return self._target(self._place, self._key_file)
        found = find_address_file(self._place)
        if found is None:
            return None
        address = found.address
        is_here = found.host == socket.gethostname()
        if address.startswith("ipc://") and not is_here:
            message = f"the collector of {found.path!r} accepts only clients on its host {found.host!r}"
            raise CollectorError(f"{message}: start it with --listen tcp://… and a key", path=found.path)
        for wildcard in ("//0.0.0.0:", "//[::]:"):
            address = address.replace(wildcard, f"//{'127.0.0.1' if is_here else found.host}:")
        return self._target(address, self._key_file or found.client_key)

    def _target(self, address: str, key_file: str | None) -> Target | None:
        _check_key(address, key_file)
        key = None if key_file is None else read_client_key(key_file)
        if not address.startswith("ipc://"):
            return Target(address, key)
        identity = socket_identity(address)
        return None if identity is None else Target(address, key, identity)


def _check_key(address: str, key_file: str | None) -> None:
    if address.startswith("tcp://") and key_file is None:
        message = f"{address!r} needs the key of the collector, without which any process could answer there"
        raise CollectorError(f"{message}: pass key_file=, the .client file of shardkeep collect --new-key")
