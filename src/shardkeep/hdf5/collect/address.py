"""Where a collector is: addresses, and the note that it leaves beside its file.

::

    run/all.h5                    the file
    run/all.h5.collector.json     {"address": "ipc:///tmp/…/collector", "host": …, "pid": …, "path": …}

So whoever knows the run folder, or the file, finds the collector. The note is removed at the end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import tempfile
from dataclasses import dataclass
from typing import Any

from shardkeep.errors import CollectorError, PlanError
from shardkeep.files.owner import command_line
from shardkeep.files.publish import publish

__all__ = ["Note", "Place", "check_address", "find_note", "is_address", "remove_note", "write_note"]

_NOTE = ".collector.json"
_TCP = re.compile(r"tcp://(\*|\[[0-9a-fA-F:.]+\]|[^:/\[\]]+):(\*|\d{1,5})$")
# sun_path has 108 bytes on Linux, 104 elsewhere.
_LONGEST_PATH_BYTES = 103


@dataclass(frozen=True)
class Note:
    """What the note says."""

    address: str
    host: str
    pid: int
    path: str
    command: str
    client_key: str | None = None


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


def note_path(path: str) -> str:
    """Return the name of the note of a file."""
    return path + _NOTE


def write_note(path: str, address: str, client_key: str | None) -> None:
    """Say where the collector of a file is."""
    values = {
        "address": address,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "path": os.path.abspath(path),
        "command": command_line(),
        "client_key": client_key,
    }
    with publish(note_path(path), exists="replace", durable=False) as file:
        file.write(json.dumps(values).encode() + b"\n")


def remove_note(path: str) -> None:
    """Take the note away, if it is this process's."""
    try:
        note = _read(note_path(path))
        if note is not None and (note.pid, note.host) == (os.getpid(), socket.gethostname()):
            os.unlink(note_path(path))
    except OSError:
        pass


def find_note(place: str) -> Note | None:
    """Return the note of a run folder or a file; None while there is none.

    Raises
    ------
    CollectorError
        There are several in the folder.
    """
    if not os.path.isdir(place):
        return _read(note_path(place))
    names = sorted(name for name in os.listdir(place) if name.endswith(_NOTE))
    if len(names) > 1:
        files = ", ".join(repr(name[: -len(_NOTE)]) for name in names)
        message = f"several collectors write in {place!r} ({files}): connect to one of these files"
        raise CollectorError(message, path=place)
    return _read(os.path.join(place, names[0])) if names else None


def _read(path: str) -> Note | None:
    try:
        with open(path, "rb") as file:
            values: dict[str, Any] = json.loads(file.read(1 << 16))
        key = values["client_key"]
        return Note(
            address=str(values["address"]),
            host=str(values["host"]),
            pid=int(values["pid"]),
            path=str(values["path"]),
            command=str(values["command"]),
            client_key=None if key is None else str(key),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


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
