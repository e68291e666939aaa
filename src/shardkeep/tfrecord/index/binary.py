"""The binary form of an index: the file ``<shard>.skidx``.

All numbers are little-endian. Before any allocation, the values of a damaged or hostile file are checked
against the size of the index file and of the shard.

::

    offset  bytes
         0      8  magic: 89 "SKIDX" 0d 0a
         8      2  version, 1
        10      1  width of a frame length: 2, 4 or 8 bytes, the smallest that holds the longest
        11      1  samples that count, 1 to 8
        12      4  zero
        16      8  records
        24      8  size of the shard in bytes
        32      8  modification time of the shard, signed, in nanoseconds since the epoch
        40   8 x 4 CRC32C of each sampled block of the shard; zero after those that count
        72    ...  length of each frame in bytes, from its start to that of the next
       end      4  CRC32C of all bytes before

The lengths add up to the size of the shard, so the last offset is not stored. The file holds no path: an
index can be copied along with its shard.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardkeep._core import crc32c
from shardkeep._paths_in_messages import shown
from shardkeep.errors import UntrustedFileError
from shardkeep.files.sidecar import open_sidecar, trusted_users
from shardkeep.files.user_warning import warn_user
from shardkeep.tfrecord.format.frame import OVERHEAD_BYTES, read_at
from shardkeep.tfrecord.index.fingerprint import SAMPLES, Fingerprint

__all__ = ["IndexHead", "decode", "encode", "read_frame_lengths", "read_index_file", "read_index_head"]

_MAGIC = b"\x89SKIDX\r\n"
_VERSION = 1
_HEAD = struct.Struct(f"<8sHBB4xQQq{SAMPLES}I")
_SUM = struct.Struct("<I")
# The checksum of any bytes followed by their checksum; avoids a copy without the last four bytes.
_RESIDUE = crc32c(_SUM.pack(crc32c(b"")))
_MOST_BYTES = 1 << 62
_DTYPES = {2: "<u2", 4: "<u4", 8: "<u8"}


class IndexHead(NamedTuple):
    """Number of records in an index file, and size and time of its shard when that was scanned."""

    records: int
    size_bytes: int
    mtime_ns: int


def encode(starts: npt.NDArray[np.uint64], fingerprint: Fingerprint) -> bytes:
    """Return the bytes of an index file.

    Parameters
    ----------
    starts : ndarray of uint64, shape (records + 1,)
        The last one is the size of the shard, as in `fingerprint`.
    fingerprint : Fingerprint
    """
    lengths = np.diff(starts)
    longest = int(lengths.max()) if len(lengths) else 0
    width = next(width for width in _DTYPES if longest < 1 << 8 * width)
    samples = fingerprint.samples + (0,) * (SAMPLES - len(fingerprint.samples))
    head = _HEAD.pack(
        _MAGIC,
        _VERSION,
        width,
        len(fingerprint.samples),
        len(lengths),
        fingerprint.size_bytes,
        fingerprint.mtime_ns,
        *samples,
    )
    body = head + lengths.astype(_DTYPES[width]).tobytes()
    return body + _SUM.pack(crc32c(body))


def read_index_file(
    path: str, *, shard_bytes: int, shard: os.stat_result | None = None
) -> tuple[npt.NDArray[np.uint64], Fingerprint] | None:
    """Read an index file, or return None for one that is absent, unreadable, damaged or of another version.

    An index that another user may have made is ignored, with a warning: it could leave out records, or count
    them wrong, in a way that no checksum of a record shows.

    Parameters
    ----------
    path : str
    shard_bytes : int
        Current size of the shard. An index that covers more is refused before it is read.
    shard : os.stat_result, optional
        Status of the shard: an index of its owner is trusted, as is one of this user or of root.

    Returns
    -------
    (ndarray of uint64, shape (records + 1,), Fingerprint) or None
        The offsets, and the fingerprint of the shard at the time of the scan, for the caller to compare.
    """
    try:
        fd = _open_index(path, shard)
        try:
            status = os.fstat(fd)
            head = os.pread(fd, _HEAD.size, 0)
            if _whole_size(head, shard_bytes) != status.st_size:
                return None
            data = read_at(fd, status.st_size, 0)
        finally:
            os.close(fd)
    except UntrustedFileError as error:
        _warn(path, error)
        return None
    except OSError:
        return None
    return decode(data, shard_bytes=shard_bytes)


def read_index_head(path: str, shard: os.stat_result) -> IndexHead | None:
    """Return the head of an index file; None if it is damaged or of another version.

    Only the head is read, so damage after it is not detected.

    Raises
    ------
    UntrustedFileError
        Another user may have made it.
    OSError
        It cannot be read.
    """
    fd = _open_index(path, shard)
    try:
        head = os.pread(fd, _HEAD.size, 0)
        if _whole_size(head, _MOST_BYTES) != os.fstat(fd).st_size:
            return None
    finally:
        os.close(fd)
    _, _, _, _, records, size_bytes, mtime_ns, *_ = _HEAD.unpack(head)
    return IndexHead(records, size_bytes, mtime_ns)


def read_frame_lengths(
    path: str, shard: os.stat_result, first: int, stop: int
) -> npt.NDArray[np.unsignedinteger]:
    """Return the lengths of the frames ``[first, stop)`` in an index file, as far as it has them.

    Only these are read, so damage of the index is not detected: compare each frame with its header.

    Raises
    ------
    UntrustedFileError
        Another user may have made it.
    OSError
        It cannot be read, or is damaged.
    """
    fd = _open_index(path, shard)
    try:
        head = os.pread(fd, _HEAD.size, 0)
        if _whole_size(head, shard.st_size) != os.fstat(fd).st_size:
            raise OSError(f"the index {path} was replaced or is damaged")
        _, _, width, _, records, *_ = _HEAD.unpack(head)
        count = max(min(stop, records) - first, 0)
        data = os.pread(fd, count * width, _HEAD.size + first * width)
        return np.frombuffer(data, _DTYPES[width], len(data) // width)
    finally:
        os.close(fd)


def _open_index(path: str, shard: os.stat_result | None) -> int:
    if shown(path) != path:  # a copy of a remote one, in a cache that only this user may write
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    owners = trusted_users() if shard is None else trusted_users() | {shard.st_uid}
    return open_sidecar(path, "index", owners=owners, data=shard)


def decode(data: bytes, *, shard_bytes: int) -> tuple[npt.NDArray[np.uint64], Fingerprint] | None:
    """Parse the bytes of an index file; return None for invalid ones."""
    head = data[: _HEAD.size]
    if _whole_size(head, shard_bytes) != len(data):
        return None
    if crc32c(data) != _RESIDUE:
        return None
    _, _, width, count, records, size_bytes, mtime_ns, *samples = _HEAD.unpack(head)
    lengths = np.frombuffer(data, _DTYPES[width], records, _HEAD.size)
    starts = _add_up(lengths)
    if starts is None or int(starts[-1]) != size_bytes:
        return None
    return starts, Fingerprint(size_bytes, mtime_ns, tuple(samples[:count]))


def _warn(path: str, error: UntrustedFileError) -> None:
    # One warning for each folder: a data set may have thousands of shards.
    folder = os.path.dirname(path)
    if folder not in _warned:
        _warned.add(folder)
        warn_user(f"{error}; until then each reader scans the shard")


def _whole_size(head: bytes, shard_bytes: int) -> int | None:
    """Return the size of an index file with this head; None if the head is invalid."""
    if len(head) < _HEAD.size:
        return None
    magic, version, width, count, records, size_bytes, _, *_ = _HEAD.unpack(head)
    if magic != _MAGIC or version != _VERSION or width not in _DTYPES or not 1 <= count <= SAMPLES:
        return None
    if size_bytes > shard_bytes or records > size_bytes // OVERHEAD_BYTES:
        return None
    return _HEAD.size + int(records) * int(width) + _SUM.size


def _add_up(lengths: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.uint64] | None:
    # In place: a cumulative sum that also converts takes three times as long.
    starts = np.empty(len(lengths) + 1, np.uint64)
    starts[0] = 0
    starts[1:] = lengths
    if len(lengths) and int(lengths.min()) < OVERHEAD_BYTES:
        return None
    np.cumsum(starts, out=starts)
    # Only 8-byte lengths can wrap around; a sum that does is less than one of its parts.
    if lengths.itemsize == 8 and bool((starts[1:] <= starts[:-1]).any()):
        return None
    return starts


_warned: set[str] = set()
