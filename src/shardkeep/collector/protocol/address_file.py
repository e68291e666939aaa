"""The file next to a collector's file that says where the collector is.

::

    run/all.h5                    the file
    run/all.h5.collector.json     {"address": "ipc:///tmp/…/collector", "host": …, "pid": …, …}

A client that connects by the run folder, or by the file, finds the collector by it. The collector removes it
at its end. After a kill it stays: on the same host it is valid only while its process runs, and the client
that finds an invalid one removes it. On another host the process cannot be seen, so the file stays. Only a
file of this user or of root is read: another one may lead to a collector of a stranger.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import asdict, dataclass
from typing import Any

from shardkeep.errors import CollectorError, ShardkeepError, UntrustedFileError
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.owner import Owner, command_line, this_process
from shardkeep.files.publish import publish_sidecar
from shardkeep.files.sidecar import open_sidecar, trusted_users
from shardkeep.hdf5.journal.paths import real_name

__all__ = [
    "AddressRecord",
    "find_address_file",
    "read_address_file",
    "remove_address_file",
    "write_address_file",
]

_SUFFIX = ".collector.json"


@dataclass(frozen=True)
class AddressRecord:
    """The content of an address file; `owner` is None in files of older versions."""

    address: str
    host: str
    pid: int
    path: str
    command: str
    client_key: str | None = None
    owner: Owner | None = None


def write_address_file(path: str, address: str, client_key: str | None) -> None:
    """Write where the collector of a file is; the caller holds the lock of the file."""
    me = this_process()
    host = socket.gethostname()
    record = AddressRecord(address, host, me.pid, os.path.abspath(path), command_line(), client_key, me)
    with publish_sidecar(_path(path), mode=0o600) as file:
        file.write(json.dumps(asdict(record)).encode() + b"\n")


def remove_address_file(path: str) -> None:
    """Remove the address file of a file, if this process has written it."""
    record = None
    with contextlib.suppress(UntrustedFileError):
        record = read_address_file(_path(path))
    if record is not None and (record.pid, record.host) == (os.getpid(), socket.gethostname()):
        with contextlib.suppress(OSError):
            os.unlink(_path(path))


def find_address_file(place: str) -> AddressRecord | None:
    """Return where the collector of a run folder or a file is; None if there is none, or it was killed.

    Raises
    ------
    CollectorError
        There are several in the folder.
    UntrustedFileError
        The only one in the folder belongs to another user.
    """
    if not os.path.isdir(place):
        return _read_valid(real_name(place))
    found: dict[str, AddressRecord] = {}
    refusal: UntrustedFileError | None = None
    for path in _files_with_address(place):
        try:
            record = _read_valid(path)
        except UntrustedFileError as error:
            refusal = refusal or error  # a client still finds the collector of its user
            continue
        if record is not None:
            found[path] = record
    if refusal is not None and not found:
        raise refusal
    if len(found) > 1:
        files = ", ".join(f"{os.path.basename(path)!r} on host {one.host!r}" for path, one in found.items())
        message = f"several collectors write in {place!r} ({files})"
        raise CollectorError(
            f"{message}: connect to one of these files, or remove the {_SUFFIX} of one that has ended",
            path=place,
        )
    return next(iter(found.values()), None)


def _path(path: str) -> str:
    return real_name(path) + _SUFFIX


def _files_with_address(folder: str) -> list[str]:
    paths = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX):
                paths.add(os.path.join(folder, entry.name[: -len(_SUFFIX)]))
            elif entry.is_symlink() and os.path.exists(_path(entry.path)):
                # A link that another user made could lead to a file of this user that is not of this run.
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid in trusted_users():
                        paths.add(real_name(entry.path))
    return sorted(paths)


def _read_valid(path: str) -> AddressRecord | None:
    """Return the record of a file; None, and remove it, if its collector has certainly ended."""
    record = read_address_file(path + _SUFFIX)
    if record is None or record.host != socket.gethostname():
        return record
    owner = record.owner
    if owner is not None and owner.same_kernel_view(this_process()) and not owner.is_gone():
        return record
    is_removed = _remove_if_unlocked(path, record)
    # A process from before a reboot, or of another container, may run unseen: the lock shows it.
    return record if (owner is None or not owner.is_gone()) and not is_removed else None


def _remove_if_unlocked(path: str, record: AddressRecord) -> bool:
    """Remove an address file without a collector; False if a process locks the file, or may lock it."""
    try:
        # Under the lock: a collector that is starting writes its address file while it holds it.
        with FileLock(path, timeout_s=0.0):
            if read_address_file(path + _SUFFIX) == record:
                os.unlink(path + _SUFFIX)
            return True
    except (ShardkeepError, OSError):
        return False


def read_address_file(path: str) -> AddressRecord | None:
    """Return the record in an address file; None if it cannot be read.

    Raises
    ------
    UntrustedFileError
        It belongs to another user.
    """
    try:
        fd = open_sidecar(path, "address file of a collector")
        with open(fd, "rb") as file:
            values: dict[str, Any] = json.loads(file.read(1 << 16))
        key, owner = values["client_key"], values.get("owner")
        return AddressRecord(
            address=str(values["address"]),
            host=str(values["host"]),
            pid=int(values["pid"]),
            path=str(values["path"]),
            command=str(values["command"]),
            client_key=None if key is None else str(key),
            owner=None if owner is None else Owner.from_json(owner),
        )
    except UntrustedFileError:
        raise
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
