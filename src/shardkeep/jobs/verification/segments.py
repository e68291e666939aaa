"""Verification of segments without HDF5 where a segment is built like one that HDF5 read without a finding.

The metadata of a segment has checksums, which the Rust half verifies. Types, filters, fill values and
attributes must have the same bytes as in a segment that `shardkeep.hdf5.verify` read; all rows must have the
hash of their commit.
"""

from __future__ import annotations

from collections.abc import Callable

from shardkeep.hdf5 import Verdict
from shardkeep.hdf5.sources.inspection import Inspector
from shardkeep.hdf5.sources.templates import Templates

__all__ = ["Segments"]


class Segments:
    """The segments that one process verifies, one after the other."""

    def __init__(self) -> None:
        self._templates = Templates(Inspector(rows=True))

    def verdict(self, path: str, progress: Callable[[int], None]) -> Verdict | None:
        """Return the verdict about an undamaged segment; None if HDF5 has to read it."""
        info = self._templates.known(path)
        if info is None or info.record is None:
            return None
        progress(sum(one.stored_bytes for one in info.datasets.values()))
        rows = sum(one.rows for one in info.record.datasets.values())
        return Verdict(path, "segment", rows, record=info.record)

    def learn(self, path: str, verdict: Verdict) -> None:
        """Use a segment that HDF5 read as a template for others."""
        if verdict.kind == "segment" and verdict.ok and not verdict.notes:
            self._templates.learn(path)
