"""The record of a commit, found in the bytes of a segment that HDF5 cannot read."""

from __future__ import annotations

import itertools
import mmap
import re

from shardkeep.errors import ShardkeepError
from shardkeep.hdf5.segments.commit_record import CommitRecord, parse_record
from shardkeep.plan.proof.sealed_json import check_sealed_text

__all__ = ["find_record"]

_START = b'{"format":2,"rank":'
_END = re.compile(rb',"crc32c":"[0-9a-f]{8}"}')
# A record has the receipt of one Loader, and names the others. The limits bound the time for hostile files.
_MOST_BYTES = 16 << 20
_MOST_STARTS = 16
_MOST_ENDS = 4096


def find_record(path: str) -> CommitRecord | None:
    """Return the last record in a file that has its checksum; None without one.

    Records of format 1 have no checksum, so they are not searched.
    """
    with open(path, "rb", buffering=0) as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _find(data, path)
        except (ValueError, OSError):  # empty, or on a file system that cannot map files
            return None


def _find(data: mmap.mmap, path: str) -> CommitRecord | None:
    start = len(data)
    for _ in range(_MOST_STARTS):
        start = data.rfind(_START, 0, start)
        if start < 0:
            break
        ends = _END.finditer(data, start, start + _MOST_BYTES)
        for end in itertools.islice(ends, _MOST_ENDS):
            text = data[start : end.end()]
            try:
                check_sealed_text(text)
                return parse_record(text, path)
            except (ValueError, ShardkeepError):
                continue
    return None
