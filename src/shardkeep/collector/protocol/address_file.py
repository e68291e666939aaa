"""The note that a collector leaves beside its file: where it is.

::

    run/all.h5                    the file
    run/all.h5.collector.json     {"address": "ipc:///tmp/…/collector", "host": …, "pid": …, …}

A client that is given the run folder, or the file, finds the collector by it. The note is removed at the end.
A collector that was killed leaves it behind: a note of this host is believed only while its process runs, and
the client that finds another one removes it. Whether a process of another host runs cannot be seen from here;
such a note stays. Only a note of this user or of root is believed: another one may lead to a stranger.
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

__all__ = ["Note", "find_note", "remove_note", "write_note"]

_SUFFIX = ".collector.json"


@dataclass(frozen=True)
class Note:
    """What the note says; `owner` is None in one that does not tell its process exactly."""

    address: str
    host: str
    pid: int
    path: str
    command: str
    client_key: str | None = None
    owner: Owner | None = None


def note_path(path: str) -> str:
    """Return the name of the note of a file."""
    return real_name(path) + _SUFFIX


def write_note(path: str, address: str, client_key: str | None) -> None:
    """Say where the collector of a file is; the caller holds the lock of the file."""
    me = this_process()
    note = Note(address, socket.gethostname(), me.pid, os.path.abspath(path), command_line(), client_key, me)
    with publish_sidecar(note_path(path), mode=0o600) as file:
        file.write(json.dumps(asdict(note)).encode() + b"\n")


def remove_note(path: str) -> None:
    """Take the note away, if it is this process's."""
    note = None
    with contextlib.suppress(UntrustedFileError):
        note = _read(note_path(path))
    if note is not None and (note.pid, note.host) == (os.getpid(), socket.gethostname()):
        with contextlib.suppress(OSError):
            os.unlink(note_path(path))


def find_note(place: str) -> Note | None:
    """Return the note of a run folder or a file; None while there is none, or only one of a killed collector.

    Raises
    ------
    CollectorError
        There are several in the folder.
    UntrustedFileError
        The only one there is not of this user.
    """
    if not os.path.isdir(place):
        return _believed(real_name(place))
    found: dict[str, Note] = {}
    refusal: UntrustedFileError | None = None
    for path in _files_with_notes(place):
        try:
            note = _believed(path)
        except UntrustedFileError as error:
            refusal = refusal or error  # it keeps no client from its own collector
            continue
        if note is not None:
            found[path] = note
    if refusal is not None and not found:
        raise refusal
    if len(found) > 1:
        files = ", ".join(f"{os.path.basename(path)!r} on host {note.host!r}" for path, note in found.items())
        message = f"several collectors write in {place!r} ({files})"
        raise CollectorError(
            f"{message}: connect to one of these files, or remove the {_SUFFIX} of one that has ended",
            path=place,
        )
    return next(iter(found.values()), None)


def _files_with_notes(folder: str) -> list[str]:
    paths = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX):
                paths.add(os.path.join(folder, entry.name[: -len(_SUFFIX)]))
            elif entry.is_symlink() and os.path.exists(note_path(entry.path)):
                # A link that another user made would lead to a file of this user that is not of this run.
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid in trusted_users():
                        paths.add(real_name(entry.path))
    return sorted(paths)


def _believed(path: str) -> Note | None:
    """Return the note of a file, unless its collector has surely ended; then the note is removed."""
    note = _read(path + _SUFFIX)
    if note is None or note.host != socket.gethostname():
        return note
    if note.owner is not None and note.owner.same_kernel_view(this_process()) and not note.owner.is_gone():
        return note
    if note.owner is None or not note.owner.is_gone():
        # A process of before a reboot, or of another container: the lock tells.
        return None if _remove_if_free(path, note) else note
    _remove_if_free(path, note)
    return None


def _remove_if_free(path: str, note: Note) -> bool:
    """Remove a note without a collector; False if a process holds the file, or may hold it unseen."""
    try:
        # Under the lock: a collector that starts just now writes its note while it holds it.
        with FileLock(path, timeout_s=0.0):
            if _read(path + _SUFFIX) == note:
                os.unlink(path + _SUFFIX)
            return True
    except (ShardkeepError, OSError):
        return False


def _read(path: str) -> Note | None:
    try:
        fd = open_sidecar(path, "note of a collector")
        with open(fd, "rb") as file:
            values: dict[str, Any] = json.loads(file.read(1 << 16))
        key, owner = values["client_key"], values.get("owner")
        return Note(
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
