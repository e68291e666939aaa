"""The index of a data set: one file, mapped by all processes of a host that read the data set.

It is in the cache folder, ``<hash of the absolute paths of the shards>.skset``. All numbers are
little-endian.

::

    offset  bytes
         0      8  magic: 89 "SKSET" 0d 0a
         8      8  version, 1
        16    ...  packed offsets of each shard, see ``crates/shardkeep-core/src/record/positions.rs``
       ...      8  zero
       ...  n x 48  for each shard: size, modification time and time of status change in ns, inode, records
                   (8 bytes each), CRC32C of the offsets (4), width of the packed offsets (1), zero (3)
       end      4  CRC32C of all bytes before

It is used while size, times and inode of every shard are those from before the scan. No program can set the
time of status change, so a shard that was rewritten with the same size and a restored modification time is
found without a read of the shard. A shard that changed less than two seconds ago could change again without
another time: then nothing is stored, and a later reader does it.

A page of a mapped file that cannot be read ends the process with SIGBUS. So the whole file is read and
checked before it is mapped; it is published by rename and never written again; only its user may write it;
and it is only stored where one kernel has the file system, because on a network file system another host can
delete a file that is mapped here. If the cache folder is on one, the folder for temporary files is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from shardkeep._core import RecordPositions, crc32c
from shardkeep.files.locks.probe import is_of_one_kernel
from shardkeep.files.publish import publish_sidecar
from shardkeep.files.sidecar import open_sidecar
from shardkeep.tfrecord.format.frame import read_at
from shardkeep.tfrecord.index.store import cache_folder

__all__ = ["Versions", "dataset_path", "open_dataset", "save_dataset", "versions_of"]

Versions = npt.NDArray[np.void]
"""Size, times and inode of each shard."""

_HEAD = b"\x89SKSET\r\n" + struct.pack("<Q", 1)
_SUM = struct.Struct("<I")
_RESIDUE = crc32c(_SUM.pack(crc32c(b"")))
_PADDING = bytes(8)
_WINDOW_BYTES = 1 << 20
_UNSAFE_NS = 2_000_000_000
_VERSION = np.dtype([("size", "<i8"), ("mtime", "<i8"), ("ctime", "<i8"), ("inode", "<u8")])
_SHARD = np.dtype(
    [*_VERSION.descr, ("records", "<u8"), ("checksum", "<u4"), ("width", "u1"), ("zero", "u1", 3)]
)


def versions_of(paths: Sequence[str]) -> Versions | None:
    """Return the versions of files; None if one cannot be inspected."""
    versions = np.empty(len(paths), _VERSION)
    try:
        for i, path in enumerate(paths):
            status = os.stat(path)
            versions[i] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    except OSError:
        return None
    return versions


def dataset_path(paths: Sequence[str]) -> str | None:
    """Return the path of the index of a data set; None if no folder can have it."""
    names = "\0".join(map(os.path.abspath, paths))
    name = hashlib.sha256(os.fsencode(names)).hexdigest()[:32] + ".skset"
    temporary = os.path.join(tempfile.gettempdir(), f"shardkeep-{os.geteuid()}")
    for folder in (cache_folder(), temporary):
        with contextlib.suppress(OSError):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if is_of_one_kernel(folder):
                return os.path.join(folder, name)
    return None


def open_dataset(path: str, versions: Versions) -> RecordPositions | None:
    """Map the index of a data set; None if there is none, or it is damaged or of other versions."""
    try:
        fd = open_sidecar(path, "index")
    except OSError:
        return None
    try:
        size_bytes = os.fstat(fd).st_size
        at = size_bytes - _SUM.size - len(versions) * _SHARD.itemsize
        if at < len(_HEAD) + len(_PADDING) or os.pread(fd, len(_HEAD), 0) != _HEAD:
            return None
        shards = np.frombuffer(read_at(fd, len(versions) * _SHARD.itemsize, at), _SHARD)
        if not np.array_equal(shards[list(_VERSION.names or ())].astype(_VERSION), versions):
            return None
        if _checksum(fd, size_bytes) != _RESIDUE:
            return None
        columns = (np.ascontiguousarray(shards[name]) for name in ("records", "width", "checksum"))
        return RecordPositions.mapped(fd, at, len(_HEAD), *columns)
    except (OSError, ValueError):
        return None
    finally:
        os.close(fd)


def save_dataset(
    path: str, paths: Sequence[str], versions: Versions, parts: Callable[[], Iterator[RecordPositions]]
) -> None:
    """Store the index of a data set, unless a shard has changed or another process has stored it meanwhile.

    Parameters
    ----------
    path : str
    paths : sequence of str
        The shards.
    versions
        Their versions from before the scan.
    parts : callable
        Returns the offsets of the shards, in order, a few shards at a time.
    """
    if int(versions["ctime"].max(initial=0)) > time.time_ns() - _UNSAFE_NS:
        return
    # No permission, no space, or the last check.
    with contextlib.suppress(OSError), publish_sidecar(path, mode=0o600) as file:
        checksum = 0

        def write(data: bytes) -> None:
            nonlocal checksum
            checksum = crc32c(data, checksum)
            file.write(data)

        write(_HEAD)
        shards = np.zeros(len(versions), _SHARD)
        for name in _VERSION.names or ():
            shards[name] = versions[name]
        first = 0
        for part in parts():
            write(part.packed())
            some = shards[first : first + len(part)]
            some["records"], some["checksum"], some["width"] = part.records, part.checksums, part.widths
            first += len(part)
        write(_PADDING)
        write(shards.tobytes())
        file.write(_SUM.pack(checksum))
        now = versions_of(paths)
        if now is None or not np.array_equal(now, versions) or open_dataset(path, versions) is not None:
            raise FileExistsError(path)


def _checksum(fd: int, size_bytes: int) -> int:
    checksum, at = 0, 0
    while at < size_bytes:
        window = os.pread(fd, _WINDOW_BYTES, at)
        if not window:
            break
        checksum, at = crc32c(window, checksum), at + len(window)
    return checksum
