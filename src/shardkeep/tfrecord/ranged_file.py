"""Records of a remote shard, read by ranges as long as that is cheaper than a copy of the whole.

A shard with a stored index is not fetched for the first records. The cost of what was read is added up, in
bytes: those of the ranges, and for each round trip as many as arrive in its time. When it reaches the size of
the shard, the shard is fetched. So reading costs at most twice as much as the better of the two, whatever
comes later. ``SHARDKEEP_REMOTE_READ`` forces one: ``ranges`` or ``whole``.
"""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import numpy.typing as npt

from shardkeep.errors import PlanError
from shardkeep.files.kinds.urls import display, url_parent
from shardkeep.files.remote.cache import View, object_path
from shardkeep.files.remote.store import (
    CONCURRENT,
    ObjectInfo,
    changed,
    checks_versions,
    concurrently,
    read,
    reads_ranges,
    stat,
)
from shardkeep.tfrecord.file_object import checked_payload
from shardkeep.tfrecord.index.remote import fetch_checked, stored_starts
from shardkeep.tfrecord.index.scan import Starts

__all__ = ["RangedFile"]

# Bytes that arrive during the round trip of a request.
_ROUND_BYTES = 4 << 20
# Two ranges with a shorter gap are one request.
_GAP_BYTES = 1 << 16


class RangedFile:
    """A remote shard that may be read by ranges.

    Parameters
    ----------
    url : str

    Attributes
    ----------
    starts : ndarray of uint64 or None
        Offsets of the frames; None if the shard must be fetched.

    Raises
    ------
    NotFoundError, RemoteError, MissingExtraError
    """

    def __init__(self, url: str) -> None:
        self._mode = os.environ.get("SHARDKEEP_REMOTE_READ") or "auto"
        if self._mode not in ("auto", "ranges", "whole"):
            raise PlanError(
                f'SHARDKEEP_REMOTE_READ={self._mode!r} is not valid: use "auto", "ranges" or "whole"'
            )
        self._info: ObjectInfo = stat(url)
        self._spent_bytes = 0
        is_small = self._info.size_bytes <= _ROUND_BYTES
        is_whole = self._mode == "whole" or os.path.exists(object_path(self._info))
        self.starts: Starts | None = None
        if not is_whole and (self._mode == "ranges" or not is_small):
            self.starts = stored_starts(self._info)

    def fetch(self) -> tuple[str, View]:
        """Return the path of a local copy, and the view that keeps it while it is referenced."""
        view = View(url_parent(self._info.url))
        return fetch_checked(view, self._info, lambda _: None), view

    def read_many(self, numbers: npt.NDArray[np.uint64], *, verify: bool) -> list[bytes] | None:
        """Return the records with these numbers, which must exist; None if the shard is to be fetched."""
        assert self.starts is not None
        info, wanted = self._info, np.unique(numbers).astype(np.int64)
        starts, stops = self.starts[wanted].astype(np.int64), self.starts[wanted + 1].astype(np.int64)
        breaks = np.flatnonzero(starts[1:] - stops[:-1] > _GAP_BYTES) + 1
        parts = [part for part in np.split(np.arange(len(wanted)), breaks) if len(part)]
        ranges = [(int(starts[part[0]]), int(stops[part[-1]])) for part in parts]
        rounds = -(-len(ranges) // CONCURRENT)
        cost = sum(stop - start for start, stop in ranges) + rounds * _ROUND_BYTES
        is_dearer = self._spent_bytes + cost > info.size_bytes or not reads_ranges(info.url)
        if self._mode == "auto" and is_dearer:
            return None
        self._spent_bytes += cost
        contents = concurrently((partial(read, info.url, *at, version=info.version),) for at in ranges)
        if not checks_versions(info.url) and stat(info.url).version != info.version:
            raise changed(info.url)
        found: dict[int, bytes] = {}
        for part, (first, _), content in zip(parts, ranges, contents, strict=True):
            for i in part.tolist():
                number, start, stop = int(wanted[i]), int(starts[i]), int(stops[i])
                frame = bytes(content[start - first : stop - first])
                found[number] = checked_payload(
                    frame, display(info.url), number, start, stop - start, verify=verify
                )
        return [found[number] for number in numbers.tolist()]
