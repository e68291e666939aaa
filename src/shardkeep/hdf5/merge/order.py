"""Orders of the rows of a merge: by rank, by step, or by a key that every row has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.hdf5.merge.find_sources import SourcePlan
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.sources.source import open_source
from shardkeep.hdf5.storage.compression import require_filters
from shardkeep.progress import Progress

__all__ = ["KeyOrder", "by_step", "read_key_order"]

_NAMED = 3
_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyOrder:
    """Rows in the order of a key.

    Attributes
    ----------
    name : str
        The dataset of the keys.
    order : ndarray of int64, shape (rows,)
        Number of the row at each place of the result; rows are numbered across all sources.
    starts : ndarray of int64, shape (sources + 1,)
        The number of the first row of each source.
    """

    name: str
    order: _Rows
    starts: _Rows

    def places(self) -> _Rows:
        """Return the place of each row in the result, by the number of the row."""
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(self.order))
        return places

    def runs(self, most: int = 1 << 16) -> Iterator[tuple[_Rows, _Rows, _Rows, _Rows]]:
        """Yield runs of adjacent rows: first row in the result, rows, source, first row in the source.

        Each array has at most `most` runs.
        """
        breaks = np.flatnonzero(np.diff(self.order) != 1) + 1
        # Two sources may follow one another without a break in the numbers.
        inner = self.starts[1:-1]
        crossings = np.flatnonzero(np.isin(self.order, inner)) if len(inner) else inner
        firsts = np.unique(np.concatenate([[0] if len(self.order) else [], breaks, crossings])).astype(
            np.int64
        )
        ends = np.append(firsts[1:], len(self.order))
        for at in range(0, len(firsts), most):
            first = firsts[at : at + most]
            rows = self.order[first]
            source = np.searchsorted(self.starts, rows, side="right") - 1
            yield first, ends[at : at + most] - first, source, rows - self.starts[source]


def by_step(sources: Sequence[SourcePlan]) -> list[int]:
    """Return the numbers of the sources by step, then rank.

    Raises
    ------
    PlanError
        A source is not a segment of a worker, so it has no step.
    """
    for one in sources:
        if one.step is None:
            message = f'order_by="step": {one.path!r} is not a worker\'s file and has no step; use "rank"'
            raise PlanError(message, path=one.path)
    return sorted(range(len(sources)), key=lambda i: (sources[i].step, sources[i].rank, i))


def read_key_order(
    name: str,
    sources: Sequence[SourcePlan],
    rows: Sequence[int],
    dtype: np.dtype[Any],
    progress: Progress = lambda *_: None,
) -> tuple[KeyOrder, tuple[str, ...]]:
    """Read all keys and sort them; 16 bytes of memory for each row.

    Parameters
    ----------
    name : str
        The dataset of the keys, one integer for each row.
    sources : sequence of SourcePlan
    rows : sequence of int
        Number of keys of each source.
    dtype : dtype
        A type that holds all keys.
    progress : callable, optional
        Called as ``progress(done, total)``.

    Returns
    -------
    KeyOrder
    tuple of str
        Findings: keys that are missing between 0 and the greatest.

    Raises
    ------
    CorruptDataError
        A key occurs twice; the error names the ranks.
    """
    starts = np.concatenate([[0], np.cumsum(np.asarray(rows, np.int64))]).astype(np.int64)
    keys = np.empty(int(starts[-1]), dtype)
    for number, source in enumerate(sources):
        if rows[number]:
            with open_source(source.path) as opened, reading(source.path, name):
                dataset = opened.dataset(name)
                require_filters(dataset)
                keys[starts[number] : starts[number + 1]] = dataset[:]
        progress(number + 1, 2 * len(sources))
    order = np.argsort(keys, kind="stable").astype(np.int64, copy=False)
    keys = keys[order]
    again = np.flatnonzero(keys[1:] == keys[:-1])
    if len(again):
        first = int(again[0])
        owners = np.searchsorted(starts, order[first : first + 2], side="right") - 1
        who = " and ".join(dict.fromkeys(sources[int(owner)].described for owner in owners))
        more = f", and {len(again) - 1:,} more keys are repeated" if len(again) > 1 else ""
        message = f"{name!r} {keys[first]} is there twice, of {who}{more}"
        raise CorruptDataError(f"{message}: rows have no order then; leave the repeated ones out")
    return KeyOrder(name, order, starts), _gaps(name, keys)


def _gaps(name: str, keys: np.ndarray[Any, Any]) -> tuple[str, ...]:
    if not len(keys):
        return ()
    lowest, highest = min(0, int(keys[0])), int(keys[-1])
    missing = highest - lowest + 1 - len(keys)
    if missing <= 0:
        return ()
    # The difference of neighbours as unsigned numbers cannot overflow.
    steps = (keys[1:] - keys[:-1]).astype(np.uint64)
    where = np.flatnonzero(steps > 1)[:_NAMED]
    spans = [(int(keys[i]) + 1, int(keys[i + 1]) - 1) for i in where]
    if int(keys[0]) > lowest:
        spans.insert(0, (lowest, int(keys[0]) - 1))
    text = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in spans[:_NAMED])
    more = ", …" if sum(b - a + 1 for a, b in spans[:_NAMED]) < missing else ""
    return (f"{missing:,} of {highest - lowest + 1:,} values of {name!r} are missing: {text}{more}",)
