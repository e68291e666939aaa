"""Sources of a division: their scan, and their records in order."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardkeep.errors import CorruptDataError
from shardkeep.files.kinds.kind import Compression
from shardkeep.files.threads.groups import divide
from shardkeep.files.threads.work import Tick, Work, WorkFile
from shardkeep.progress import Progress, ticking
from shardkeep.tfrecord.damage import Damage, OnCorrupt, read_records
from shardkeep.tfrecord.format.frame import OVERHEAD_BYTES
from shardkeep.tfrecord.index.index import frame_starts
from shardkeep.tfrecord.index.scan import processors, scan_in_parts
from shardkeep.tfrecord.reader import Reader

__all__ = ["Source", "changed_error", "scan"]

_GROUP_BYTES = 64 << 20


@dataclass(frozen=True)
class Source:
    """Source file of a division.

    Attributes
    ----------
    path : str
    compression : {None, "gzip", "zlib"}
    starts : ndarray of uint64, shape (records + 1,)
        Offsets of the frames in the uncompressed data; without those that are skipped.
    on_corrupt : {"raise", "skip", "repair"}
        "raise" for a file without damage.
    damaged : tuple of Damage
        The damage that was found by the scan.
    """

    path: str
    compression: Compression | None
    starts: npt.NDArray[np.uint64]
    on_corrupt: OnCorrupt = "raise"
    damaged: tuple[Damage, ...] = ()

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.starts) - 1

    @property
    def is_stream(self) -> bool:
        """True if the records are read in order, not by their offsets."""
        return self.compression is not None or self.on_corrupt != "raise"

    def stream(self, *, verify: bool) -> Iterator[bytes]:
        """Yield all records in order."""
        return _records(self.path, self.compression, self.on_corrupt, lambda _: None, verify=verify)


def changed_error(path: str) -> CorruptDataError:
    """Return the error for a source that a process writes."""
    message = f"{path}: the file changed while it was read; wait until its writer has finished"
    return CorruptDataError(message, path=path)


def scan(
    paths: Sequence[str], *, on_corrupt: OnCorrupt, progress: Progress, executor: Executor | None = None
) -> tuple[Source, ...]:
    """Return the sources with the offsets of their records, scanned in threads or by an executor.

    Checksums of payloads are checked if `on_corrupt` requires it; otherwise they are checked by the copy.

    Raises
    ------
    CorruptRecordError, TruncatedFileError, FormatError, NotFoundError
        As `shardkeep.tfrecord.build_index`.
    """
    compressions = {path: Reader(path).compression for path in paths}
    sizes = {path: os.path.getsize(path) for path in paths}
    work = Work(progress, sum(sizes.values()), executor)
    groups = list(_groups(paths, compressions, sizes))
    scanned = work.run(functools.partial(_scan_group, on_corrupt), groups, processors())
    return tuple(one for group in scanned for one in group)


class _Group(NamedTuple):
    """Files that are scanned together; `path` is the first one."""

    path: str
    size_bytes: int
    paths: list[str]
    compression: Compression | None


def _scan_group(on_corrupt: OnCorrupt, group: _Group, tick: Tick) -> list[Source]:
    paths, verify = group.paths, on_corrupt != "raise"
    if group.compression is not None:
        return [_scan_stream(paths[0], group.compression, on_corrupt, tick)]
    try:
        if len(paths) == 1:
            found = [scan_in_parts(paths[0], None, verify=verify, tick=tick)[0]]
        else:
            found = frame_starts(paths, verify=verify, threads=1)
            tick(group.size_bytes)
    except CorruptDataError:
        if on_corrupt == "raise":
            raise
        if len(paths) == 1:
            return [_scan_stream(paths[0], None, on_corrupt, tick)]
        alone = [_Group(path, os.path.getsize(path), [path], None) for path in paths]
        return [one for each in alone for one in _scan_group(on_corrupt, each, tick)]
    return [Source(path, None, starts) for path, starts in zip(paths, found, strict=True)]


def _groups(
    paths: Sequence[str], compressions: dict[str, Compression | None], sizes: dict[str, int]
) -> Iterator[_Group]:
    """Divide the paths into compressed files, large files and groups of small ones, in their order."""
    for is_plain, some in itertools.groupby(paths, lambda path: compressions[path] is None):
        files = [WorkFile(path, sizes[path]) for path in some]
        most_files = len(files) if is_plain else 1
        for group in divide(files, most_bytes=_GROUP_BYTES, most_files=most_files):
            names = [one.path for one in group]
            yield _Group(names[0], sum(one.size_bytes for one in group), names, compressions[names[0]])


def _scan_stream(path: str, compression: Compression | None, on_corrupt: OnCorrupt, tick: Tick) -> Source:
    damaged: list[Damage] = []
    records = _records(path, compression, on_corrupt, damaged.append, verify=False)
    read = ticking(records, len, os.path.getsize(path), tick, compressed=compression is not None)
    lengths = [len(record) for record in read]
    starts = np.zeros(len(lengths) + 1, np.uint64)
    np.cumsum(np.array(lengths, np.uint64) + np.uint64(OVERHEAD_BYTES), out=starts[1:])
    return Source(path, compression, starts, on_corrupt if damaged else "raise", tuple(damaged))


def _records(
    path: str,
    compression: Compression | None,
    on_corrupt: OnCorrupt,
    on_damage: Callable[[Damage], None],
    *,
    verify: bool,
) -> Iterator[bytes]:
    if on_corrupt == "raise":
        return iter(Reader(path, compression=compression, verify=verify))
    return (record for _, record in read_records(path, on_corrupt=on_corrupt, on_damage=on_damage))
