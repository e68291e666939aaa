"""Text indexes of NVIDIA DALI's ``tfrecord2idx`` and of vahidk/tfrecord.

One line for each record: the offset of its frame and the length of the frame, in bytes, both decimal. The
length includes the 16 bytes around the record. Both tools write the same (DALI: ``tools/tfrecord2idx``,
vahidk/tfrecord: ``tfrecord/tools/tfrecord2idx.py``), and neither notices a shard that ends inside a
record.
"""

from __future__ import annotations

import os
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from shardkeep.errors import FormatError, NotFoundError, PlanError
from shardkeep.files.kinds.urls import local_path
from shardkeep.files.publish import Exists, publish
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.tfrecord.format.frame import HEADER_BYTES, OVERHEAD_BYTES
from shardkeep.tfrecord.index.fingerprint import header_of
from shardkeep.tfrecord.index.index import Index, load_index
from shardkeep.tfrecord.index.scan import frame_starts

__all__ = ["find_text_index_fault", "read_text_index", "write_text_index"]

_CHECKED_FRAMES = 64
_FEW_FRAMES = 4
# A longer index is checked at its end only, where one of another version of the shard nearly always differs.
_WHOLE_BYTES = 1 << 18
_LAST_LINE_BYTES = 64
_LINES = 65_536


@accepts_urls("path")
def write_text_index(
    path: str | os.PathLike[str], output: str | os.PathLike[str], *, exists: Exists = "fail"
) -> Index:
    """Write the index of a shard as text, for DALI's and vahidk's readers.

    Parameters
    ----------
    path : str or os.PathLike
        An uncompressed TFRecord file.
    output : str or os.PathLike
        The index file; both tools use ``<name>.idx`` or ``<name>.index``.
    exists : {"fail", "replace"}
        What to do if `output` exists.

    Returns
    -------
    Index
        The index that was written.

    Raises
    ------
    CorruptRecordError, TruncatedFileError, FormatError, NotFoundError
        The shard has no index; see `build_index`.
    ExistsError, DurabilityError
        As `shardkeep.files.publish`: the file appears whole or not at all.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import Writer
    >>> path = os.path.join(tempfile.mkdtemp(), "train.tfrecord")
    >>> with Writer(path) as w:
    ...     for record in (b"a", b"bb", b""):
    ...         w.write(record)
    >>> index = write_text_index(path, path + ".idx")
    >>> with open(path + ".idx") as file:
    ...     print(file.read(), end="")
    0 17
    17 18
    35 16
    >>> read_text_index(path + ".idx", path) == index
    True
    """
    index = load_index(path)
    lengths = np.diff(index.starts)
    with publish(output, exists=exists) as file:
        for first in range(0, index.records, _LINES):
            part = slice(first, min(first + _LINES, index.records))
            pairs = zip(index.starts[part].tolist(), lengths[part].tolist(), strict=True)
            file.write("".join(f"{start} {length}\n" for start, length in pairs).encode("ascii"))
    return index


@accepts_urls("path", "shard")
def read_text_index(path: str | os.PathLike[str], shard: str | os.PathLike[str]) -> Index:
    """Read a text index and check that it is that of a shard.

    Parameters
    ----------
    path : str or os.PathLike
        The index file.
    shard : str or os.PathLike
        The uncompressed TFRecord file of the index.

    Returns
    -------
    Index

    Raises
    ------
    FormatError
        The file is not a text index.
    PlanError
        The index is not that of this shard: it omits bytes, reaches beyond the end, or has other frames. The
        frames must cover the file from the first byte to the last, and the headers of up to 64 of them,
        evenly spread, are compared.
    CorruptRecordError, TruncatedFileError
        The shard itself is damaged, and the index was made without a check.
    NotFoundError
        One of the two files does not exist.

    Examples
    --------
    See `write_text_index`.
    """
    name, data = local_path(path), local_path(shard)
    numbers = _parse(name)
    with _open(data) as file:
        wrong = _misfit(numbers, file.fileno())
    if wrong is None:
        ends = numbers[-1:].sum(axis=1, dtype=np.uint64)
        return Index(np.concatenate([numbers[:, 0], ends if len(ends) else np.zeros(1, np.uint64)]))
    # If the shard is damaged, this raises its error.
    frame_starts([data])
    raise PlanError(f"{name}: not the index of {data!r}: {wrong}; build it again", path=name)


def find_text_index_fault(path: str, shard: str) -> str | None:
    """Return why a text index does not fit a shard, in a few milliseconds at most; None if it seems to fit.

    Raises
    ------
    NotFoundError, OSError
        One of the two cannot be read.
    """
    with _open(shard) as data, _open(path) as file:
        if os.fstat(file.fileno()).st_size <= _WHOLE_BYTES:
            try:
                return _misfit(_parse(path), data.fileno(), most_frames=_FEW_FRAMES)
            except FormatError:
                return "it is not a text index, which holds two decimal numbers a line"
        file.seek(-_LAST_LINE_BYTES, os.SEEK_END)
        last = file.read().split()[-2:]
        size_bytes = os.fstat(data.fileno()).st_size
        if all(word.isdigit() for word in last) and sum(map(int, last)) == size_bytes:
            return None
        return f"its last line does not end at byte {size_bytes:,}, the end of the shard"


def _parse(name: str) -> npt.NDArray[np.uint64]:
    """Return the offsets and lengths: shape (records, 2)."""
    with _open(name) as file:
        text = file.read()
    if text.translate(None, b"0123456789 \t\r\n"):
        raise FormatError(f"{name}: not a text index, which holds decimal numbers only", path=name)
    words = text.split()
    if len(words) % 2:
        raise FormatError(
            f"{name}: not a text index: a line must have two numbers, one is missing", path=name
        )
    try:
        return np.array([int(word) for word in words], dtype=np.uint64).reshape(-1, 2)
    except (ValueError, OverflowError):
        raise FormatError(f"{name}: not a text index: a number has more than 64 bits", path=name) from None


def _misfit(numbers: npt.NDArray[np.uint64], fd: int, *, most_frames: int = _CHECKED_FRAMES) -> str | None:
    """Return a description of the difference from the shard; None if there is none."""
    size_bytes = os.fstat(fd).st_size
    starts, lengths = numbers[:, 0], numbers[:, 1]
    if len(starts) == 0:
        return f"it is empty, the shard has {size_bytes} bytes" if size_bytes else None
    # No sum below can exceed 64 bits once this holds.
    wrong = (starts > size_bytes) | (lengths > size_bytes)
    if not wrong.any():
        wrong = lengths < OVERHEAD_BYTES
        wrong |= starts + lengths != np.append(starts[1:], np.uint64(size_bytes))
        wrong[0] |= starts[0] != 0
    if wrong.any():
        record = int(np.argmax(wrong))
        return f"record {record} does not reach from the one before to the next one or to the end"
    count = min(len(starts), most_frames)
    for record in np.linspace(0, len(starts) - 1, count).astype(np.int64).tolist():
        if os.pread(fd, HEADER_BYTES, int(starts[record])) != header_of(int(lengths[record])):
            return f"there is no frame of {lengths[record]} bytes at byte {starts[record]} (record {record})"
    return None


def _open(name: str) -> BinaryIO:
    try:
        return open(name, "rb")
    except FileNotFoundError:
        raise NotFoundError(f"{name}: no such file", path=name) from None
