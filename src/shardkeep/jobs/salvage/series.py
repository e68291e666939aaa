"""The series of segments of each rank, chosen from all whole segments of a damaged run folder.

The record of a commit has the rank, the number in the series and the checksum of the record before it, so a
segment is known whatever its name is. Of segments that contradict each other, those count that belong to more
others: a longer chain of records, then the right name, then the later commit.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.segments.commit_record import CommitRecord
from shardkeep.hdf5.segments.run_folder import cut_step, numbers_in_path, rank_folder, segment_path
from shardkeep.hdf5.segments.series_check import RunCheck

__all__ = ["Segment", "Series", "choose_series"]


@dataclass(frozen=True)
class Segment:
    """Whole segment: its rows have the hashes of its record."""

    path: str
    size_bytes: int
    record: CommitRecord

    def path_in(self, run: str) -> str:
        """Return the path that it must have in a run folder."""
        return segment_path(rank_folder(run, self.record.rank), self.record.sequence, self.record.step)

    def is_named(self, run: str) -> bool:
        """Return whether it has that path, or the one that it has while it replaces a segment."""
        folder = rank_folder(run, self.record.rank)
        return self.path == segment_path(folder, self.record.sequence, self.record.step, cut_step(self.path))

    def replaced(self) -> str | None:
        """Return the path of the segment that it was cut from; None if it is not such a cut."""
        cut_from = cut_step(self.path)
        if cut_from is None:
            return None
        return segment_path(os.path.dirname(self.path), self.record.sequence, cut_from)


@dataclass(frozen=True)
class Series:
    """Segments of a run.

    Attributes
    ----------
    segments : tuple of Segment
        By rank, then in their order.
    unused : dict
        For each other segment the reason, by path.
    """

    segments: tuple[Segment, ...]
    unused: dict[str, str]

    def findings(self, output: str) -> tuple[str, ...]:
        """Return what a merge of the folder that holds them reports as missing."""
        check = RunCheck()
        for one in self.segments:
            check.add(one.path_in(output), one.record, listed=False)
        return check.findings() if self.segments else ()


def choose_series(run: str, found: Sequence[Segment]) -> Series:
    """Return the segments that a merge accepts together.

    Parameters
    ----------
    run : str
        The run folder.
    found : sequence of Segment
    """
    ranks: defaultdict[int, list[Segment]] = defaultdict(list)
    places: dict[str, str] = {}
    cut = {one.replaced() for one in found}
    unused = {one.path: "a rollback has cut it" for one in found if one.path in cut}
    for one in found:
        if one.path not in unused:
            ranks[one.record.rank].append(one)
            places[one.path] = one.path_in(run)
    chosen: list[Segment] = []
    for _, segments in sorted(ranks.items()):
        chosen += _choose(run, segments, places, unused)
    while True:
        check = RunCheck()
        for one in chosen:
            try:
                check.add(one.path_in(run), one.record, listed=False)
            except CorruptDataError:
                unused[one.path] = "it contradicts the segments before it"
                chosen.remove(one)
                break
        else:
            return Series(tuple(chosen), unused)


def _choose(
    run: str, segments: Sequence[Segment], places: dict[str, str], unused: dict[str, str]
) -> list[Segment]:
    """Return the segments of one rank in their order, and add the others to `unused`.

    `places` has the right path of each segment of the run.
    """
    segments = sorted(segments, key=lambda one: (not one.is_named(run), one.path))
    different: list[Segment] = []
    copies: dict[tuple[str | None, str], Segment] = {}
    for one in segments:
        # Records of format 1 have no checksum.
        first = copies.setdefault((one.record.crc32c, one.record.to_json()), one)
        if first is one:
            different.append(one)
        else:
            unused[one.path] = f"it is a copy of {os.path.relpath(first.path, run)}"
    chains = _Chains(different, run)
    candidates: list[Segment] = []
    for one in different:
        place = places[one.path]
        if not chains.weight(one) and places.get(place) != one.path:
            unused[one.path] = (
                f"nothing proves that it is of this run; if it is, its name is {os.path.relpath(place, run)}"
            )
        elif numbers_in_path(one.path) is None and not chains.is_continued(one):
            # It may have been moved aside because its commit was rolled back.
            unused[one.path] = "it has another name than a segment, and no later commit proves that it counts"
        else:
            candidates.append(one)

    def preference(one: Segment) -> tuple[int, bool, bool, float, int]:
        is_misplaced = not one.is_named(run)
        newest_first = -one.record.created, one.record.sequence
        return -chains.weight(one), is_misplaced, not chains.is_continued(one), *newest_first

    chosen: list[Segment] = []
    for one in sorted(candidates, key=preference):
        at = bisect_left(chosen, one.record.sequence, key=lambda other: other.record.sequence)
        neighbours = [*chosen[max(at - 1, 0) : at], one, *chosen[at : at + 1]]
        if _follow(neighbours, run):
            chosen.insert(at, one)
        else:
            other = os.path.relpath(neighbours[neighbours.index(one) - 1].path, run)
            unused[one.path] = f"it contradicts {other}: it is of another run, or was rolled back"
    return chosen


class _Chains:
    """Segments of one rank whose records name each other; the weight of a chain is its right names."""

    def __init__(self, segments: Sequence[Segment], run: str) -> None:
        self._root: dict[str, str] = {one.path: one.path for one in segments}
        self._continued: set[str] = set()
        by_crc = {(one.record.sequence, one.record.crc32c): one for one in segments if one.record.crc32c}
        openings: dict[str, str] = {}
        for one in segments:
            self._root[self._find(one.path)] = self._find(
                openings.setdefault(one.record.incarnation, one.path)
            )
            before = by_crc.get((one.record.sequence - 1, one.record.previous or ""))
            if before is not None:
                self._continued.add(before.path)
                self._root[self._find(one.path)] = self._find(before.path)
        self._weights = Counter(self._find(one.path) for one in segments if one.is_named(run))

    def is_continued(self, one: Segment) -> bool:
        """Return whether a later segment has the checksum of this one."""
        return one.path in self._continued

    def weight(self, one: Segment) -> int:
        """Return the number of segments with the right name in the chain of one."""
        return self._weights[self._find(one.path)]

    def _find(self, path: str) -> str:
        while self._root[path] != path:
            self._root[path] = path = self._root[self._root[path]]
        return path


def _follow(segments: Sequence[Segment], run: str) -> bool:
    """Return whether segments of one rank may follow each other, perhaps with others in between."""
    check = RunCheck()
    try:
        for one in segments:
            check.add(one.path_in(run), one.record, listed=False)
    except CorruptDataError:
        return False
    records = [one.record for one in segments]
    pairs = itertools.pairwise(records)
    return all(one.sequence < after.sequence and one.step < after.step for one, after in pairs)
