"""Addresses that a collector can listen on, and the place of a Unix socket."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import tempfile

from shardkeep.errors import CollectorError, PlanError

__all__ = ["Place", "check_address", "is_address", "remove_dead_socket"]

_TCP = re.compile(r"tcp://(\*|\[[0-9a-fA-F:.]+\]|[^:/\[\]]+):(\*|\d{1,5})$")
# sun_path has 108 bytes on Linux, 104 elsewhere.
_LONGEST_PATH_BYTES = 103


class Place:
    """A folder of our own for a Unix socket, removed at the end: only this user can enter it."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="shardkeep-")
        self.address = f"ipc://{self.folder}/collector"

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def is_address(text: str) -> bool:
    """Whether it is an address, and not the path of a run folder or file."""
    return "://" in text


def check_address(address: str) -> str:
    """Return an address that a collector can listen on.

    Raises
    ------
    PlanError
        It is none.
    """
    if address.startswith("ipc://"):
        path = address[6:]
        if not path or path == "*" or path.startswith("@"):
            message = (
                f"{address!r} names no file: a Unix socket needs a path, whose folder decides who may use it"
            )
            raise PlanError(message)
        if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
            message = f"{path!r} is longer than the {_LONGEST_PATH_BYTES} bytes that a Unix socket may have"
            raise PlanError(f"{message}: choose a shorter path, or leave the address out")
        return address
    if _TCP.match(address):
        return address
    raise PlanError(f"{address!r} is no address: use ipc:///path/of/a/socket or tcp://host:port")


def remove_dead_socket(address: str) -> None:
    """Remove what a killed collector left of a Unix socket; one that answers stays."""
    path = address[6:]
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except OSError:
            return
        else:
            raise CollectorError(f"another collector listens on {address!r}: choose another address")
