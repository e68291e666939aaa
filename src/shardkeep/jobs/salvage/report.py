"""Report of a repair: what was kept, corrected and lost, part by part."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from shardkeep._summary import summary

__all__ = [
    "MOST_PARTS",
    "NothingKeptError",
    "Outcome",
    "RepairReport",
    "RepairedFile",
    "RepairedPart",
    "shortened",
]

MOST_PARTS = 10_000
"""Number of parts in a report; longer ones are not read."""

Outcome = Literal["kept", "repaired", "unchecked", "lost"]


class NothingKeptError(Exception):
    """End of the publication of a new file in which nothing can be kept."""


@dataclass(frozen=True)
class RepairedPart:
    """Part of a damaged file.

    Attributes
    ----------
    outcome : {"kept", "repaired", "unchecked", "lost"}
        "kept": it is whole by its checksums. "repaired": it was corrected, and is whole by its checksums.
        "unchecked": it was copied as it is stored; the file has no checksum of it. "lost": it is not in the
        output, or is filled with the fill value there.
    reason : str
        One line: the contents of the part, and for a part that is not kept the damage.
    items : int
        Number of records or rows; 0 for lost bytes in which no record can be recognised.
    offset_bytes, bytes : int or None
        Start and size in the damaged file; None in a compressed file where they are not known.
    record : int or None
        Number of the first record in the damaged file; damaged bytes count as in `shardkeep.verify`.
    dataset : str or None
        Path of the HDF5 object.
    chunk : tuple of int or None
        First element of the chunk of the dataset.
    """

    outcome: Outcome
    reason: str
    items: int = 0
    offset_bytes: int | None = None
    bytes: int | None = None
    record: int | None = None
    dataset: str | None = None
    chunk: tuple[int, ...] | None = None

    __repr__ = summary


def shortened(parts: Iterable[RepairedPart]) -> list[RepairedPart]:
    """Return the first `MOST_PARTS`, and one part for each outcome with the sums of the rest."""
    rest = iter(parts)
    first = list(itertools.islice(rest, MOST_PARTS))
    totals: dict[str, RepairedPart] = {}
    numbers: Counter[str] = Counter()
    for one in rest:
        old = totals.get(one.outcome)
        numbers[one.outcome] += 1
        if old is not None:
            size_bytes = (old.bytes or 0) + (one.bytes or 0)
            one = replace(old, items=old.items + one.items, bytes=size_bytes)
        totals[one.outcome] = one
    return first + [
        replace(one, reason=f"the sums of {numbers[outcome]:,} more ranges")
        for outcome, one in totals.items()
    ]


@dataclass(frozen=True)
class RepairedFile:
    """Result of one damaged file.

    Attributes
    ----------
    path : str
    output : str or None
        The new file; None with ``dry_run``, or if nothing could be kept.
    kind : str
        "tfrecord", "hdf5", "run" (a folder with the segments of `WorkerFile`) or "collected" (by a
        `Collector`); of a path with nothing to salvage also "set" and "other", as of `VerifiedFile`.
    file_bytes : int
        Size of the damaged file.
    parts : tuple of RepairedPart
        In the order of the file; neighbours with one outcome and reason are one part.
    notes : tuple of str
        Remarks: files that were not used, findings of a later merge, the command to continue with.
    """

    path: str
    output: str | None
    kind: str
    file_bytes: int
    parts: tuple[RepairedPart, ...]
    notes: tuple[str, ...] = ()

    __repr__ = summary

    def items(self, outcome: Outcome) -> int:
        """Return the number of records or rows with an outcome.

        Parameters
        ----------
        outcome : {"kept", "repaired", "unchecked", "lost"}

        Returns
        -------
        int
        """
        return sum(part.items for part in self.parts if part.outcome == outcome)

    @property
    def ok(self) -> bool:
        """True if nothing is lost."""
        return all(part.outcome != "lost" for part in self.parts)


@dataclass(frozen=True)
class RepairReport:
    """Report of `shardkeep.repair`.

    Attributes
    ----------
    path : str
        The damaged file or folder.
    output : str or None
        The new file or folder; None if none was written.
    dry_run : bool
    files : tuple of RepairedFile
        The damaged files.
    intact : int
        Number of data files without damage.
    """

    path: str
    output: str | None
    dry_run: bool
    files: tuple[RepairedFile, ...]
    intact: int = 0

    __repr__ = summary

    @property
    def ok(self) -> bool:
        """True if nothing is lost."""
        return all(one.ok for one in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as types that JSON supports."""
        return {"ok": self.ok, **asdict(self)}
