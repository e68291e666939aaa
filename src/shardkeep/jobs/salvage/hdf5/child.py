"""Child process that reads a damaged HDF5 file, since HDF5 may crash or run for ever.

It reads a request (a line of JSON) from standard input and answers with lines of JSON: ``{"object": path}``
before each object, ``{"bytes": n}`` during the work, ``{"part": …}`` for each part, and ``{"done": …}``.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any

import h5py

from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.names import is_own_table
from shardkeep.jobs.salvage.hdf5.findings import Findings, limit_time
from shardkeep.jobs.salvage.hdf5.patched_file import PatchedFile
from shardkeep.jobs.salvage.hdf5.superblock import Superblock
from shardkeep.jobs.salvage.hdf5.target import Target
from shardkeep.jobs.salvage.hdf5.walk import Walk

__all__ = ["main"]

# A damaged size must not use all memory; the largest chunk of HDF5 has 4 GiB.
_MORE_BYTES = 8 << 30


def main() -> None:
    """Serve until standard input ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MORE_BYTES, _MORE_BYTES))
    for line in sys.stdin:
        limit_time()
        _send(_answer(json.loads(line)))
        signal.setitimer(signal.ITIMER_PROF, 0)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"done": _salvage(request)}
    except OSError as error:
        if error.errno is None:
            raise
        return {"error": [error.errno, os.strerror(error.errno)]}


def _salvage(request: dict[str, Any]) -> dict[str, str]:
    """Copy all objects."""
    block = Superblock(request["offset_bytes"], bytes.fromhex(request["superblock"]))
    fd = os.open(request["path"], os.O_RDONLY | os.O_CLOEXEC)
    try:
        raw = PatchedFile(fd, os.fstat(fd).st_size, block)
        try:
            file = h5py.File(raw, "r")
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            return {"failure": f"HDF5 cannot open it ({first_line(error)})", "kind": "hdf5"}
        with file:
            return {"failure": "", "kind": _copy(raw, file, block, request)}
    finally:
        os.close(fd)


def _copy(raw: PatchedFile, file: h5py.File, block: Superblock, request: dict[str, Any]) -> str:
    """Copy the objects of an open file; return its kind."""
    target = Target(request["target"], block.data[8], block.offset_bytes)
    with target.file:
        walk = Walk(raw, file, block.offset_bytes, target, Findings(_send), set(request["skipped"]))
        walk.run(checked=block.is_checked)
        is_segment = "_commit" in target.file and is_own_table(target.file.id, "_commit")
    return "segment" if is_segment else "hdf5"


def _send(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201  # the answer to the parent process
