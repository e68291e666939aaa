"""Child process that reads a damaged HDF5 file, since HDF5 may crash or run for ever.

A question is a request of `process`. Progress is ``{"object": path}`` before each object, ``{"part": …}`` for
each part, and bytes; the answer is ``{"done": …}`` or ``{"error": [number, text]}``.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from typing import Any

import h5py

from shardkeep._core import hdf5_damage
from shardkeep.errors import ShardkeepError
from shardkeep.files.child_python import send, serve
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.names import is_own_table
from shardkeep.hdf5.verify import verify
from shardkeep.jobs.salvage.hdf5.findings import Findings, LossFound, limit_time
from shardkeep.jobs.salvage.hdf5.patched_file import PatchedFile
from shardkeep.jobs.salvage.hdf5.remains import Remains
from shardkeep.jobs.salvage.hdf5.superblock import Superblock
from shardkeep.jobs.salvage.hdf5.target import Target
from shardkeep.jobs.salvage.hdf5.walk import Walk

__all__ = ["main"]

# A damaged size must not use all memory; the largest chunk of HDF5 has 4 GiB.
_MORE_BYTES = 8 << 30
# Of 0.5 s; damage in further ones is found by the limit of processor time.
_MOST_STRUCTURES = 1 << 20
_OPENING = "\0open"


def main() -> None:
    """Serve until standard input ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MORE_BYTES, _MORE_BYTES))
    serve(_answer)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    limit_time()
    try:
        return {"done": _salvage(request)}
    except OSError as error:
        if error.errno is None:
            raise
        return {"error": [error.errno, os.strerror(error.errno)]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _salvage(request: dict[str, Any]) -> dict[str, str]:
    """Copy all objects."""
    block = Superblock(request["offset_bytes"], bytes.fromhex(request["superblock"]))
    fd = os.open(request["path"], os.O_RDONLY | os.O_CLOEXEC)
    try:
        raw = PatchedFile(fd, os.fstat(fd).st_size, block)
        remains = None
        if request["salvages"]:
            remains = Remains(request["path"], raw)
        elif hdf5_damage(request["path"], lock=False, most_structures=_MOST_STRUCTURES, rows=True)[1]:
            return {"failure": "it has damage that HDF5 does not survive", "kind": "hdf5"}
        file = None
        if block.data and _OPENING not in request["skipped"]:
            send({"bytes": 0, "object": _OPENING})
            try:
                file = h5py.File(raw, "r")
            except (OSError, RuntimeError, ValueError, KeyError) as error:
                if remains is None:
                    return {"failure": f"HDF5 cannot open it ({first_line(error)})", "kind": "hdf5"}
        return {"failure": "", "kind": _copy(raw, file, remains, block, request)}
    finally:
        os.close(fd)


def _copy(
    raw: PatchedFile,
    file: h5py.File | None,
    remains: Remains | None,
    block: Superblock,
    request: dict[str, Any],
) -> str:
    """Copy the objects of a file; return its kind."""
    version = block.data[8] if block.data else 2
    target = Target(request["target"], version, block.offset_bytes)
    findings = Findings(stops=not request["salvages"])
    skipped = set(request["skipped"])
    with target.file, file or contextlib.nullcontext():
        walk = Walk(raw, file, block.offset_bytes, target, findings, remains, skipped)
        with contextlib.suppress(LossFound):
            walk.run(checked=block.is_checked)
            if request["is_as_stored"] and not findings.has_lost:
                _check_hashes(request["path"], target.file.id, findings)
        is_segment = "_commit" in target.file and is_own_table(target.file.id, "_commit")
    return "segment" if is_segment else "hdf5"


def _check_hashes(path: str, copy: h5py.h5f.FileID, findings: Findings) -> None:
    """Report rows that do not have the hash that a commit or a merge wrote."""
    tables = ("_commit", "_checks")
    if not any(copy.links.exists(one.encode()) and is_own_table(copy, one) for one in tables):
        return
    with contextlib.suppress(ShardkeepError):
        for finding in verify(path, progress=findings.read).findings:
            findings.add("lost", f"{finding}; the new file has it as it is stored", "/")
