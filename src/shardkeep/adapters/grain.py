"""Grain: batches of a `Loader` as an `IterDataset`, and data sources for its `MapDataset` and `DataLoader`.

::

    source = LoaderDataset(loader)                       batches, in Grain's own pipeline
    pipeline = source.map(augment).mp_prefetch(options)
    TrackedDataset(pipeline, source)                     moves the loader, with its state
    RecordSource(paths), H5Source(path)                  records and rows by number

Worker k of n reads the steps k, k + n, … of the rank's plan, and `mp_prefetch` asks its workers in turn. So
any number of workers delivers the sequence of the loader, each record once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.adapters.passes import Passes, checked_loader
from shardkeep.adapters.random_access import Records, Rows
from shardkeep.errors import PlanError
from shardkeep.loader import Loader, Place

if TYPE_CHECKING:
    import grain
else:
    grain = import_extra("grain", "shardkeep.adapters.grain")

__all__ = ["H5Source", "LoaderDataset", "RecordSource", "TrackedDataset"]

_PLACE = "shardkeep_place"


class RecordSource(Records):
    """Records of TFRecord shards by number, for ``grain.MapDataset.source`` and ``grain.DataLoader``.

    The parameters are those of `shardkeep.adapters.random_access.Records`: ``RecordSource(paths)`` has the
    records as bytes, ``RecordSource(paths, features)`` decoded.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(4):
    ...         w.write_example({"x": number})
    >>> rows = grain.MapDataset.source(RecordSource(w.path, {"x": sk.FixedLen()})).batch(2)
    >>> [batch["x"].tolist() for batch in rows]
    [[0, 1], [2, 3]]
    """

    _getitems = Records.__getitems__


class H5Source(Rows):
    """Rows of HDF5 datasets by number, for ``grain.MapDataset.source`` and ``grain.DataLoader``.

    The parameters are those of `shardkeep.adapters.random_access.Rows`: ``H5Source(path, ["x", "label"])``.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> path = tempfile.mkdtemp() + "/x.h5"
    >>> with sk.hdf5.open(path, "w") as f:
    ...     f["x"] = [10, 20, 30, 40]
    >>> rows = grain.MapDataset.source(H5Source(path))[::-1].batch(2)
    >>> [batch["x"].tolist() for batch in rows]
    [[40, 30], [20, 10]]
    """

    _getitems = Rows.__getitems__


class _Pass:
    """Beginning of a pass, shared by a source and its copies; pickled for each worker."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        # A state, and not the position of the loader: a worker that starts late would begin elsewhere.
        self.begin: dict[str, Any] | None = None
        self.has_places = False


class LoaderDataset(grain.IterDataset):
    """Batches of a loader as a Grain dataset.

    Parameters
    ----------
    loader : Loader
        Loader of this rank, made in the main process.

    Notes
    -----
    A batch is a dict of arrays, as the loader makes it. An iteration delivers the epochs that are left of the
    loader's run, from its position on, and does not move it. It has Grain's own state, which fits the same
    number of workers. Most training loops want `TrackedDataset` as their last step.

    For more than one epoch, make the loader with ``epochs=n`` or ``epochs=None``: ``repeat`` would deliver
    each epoch in the order of the first.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(4):
    ...         w.write_example({"x": number})
    >>> loader = sk.Loader(w.path, {"x": sk.FixedLen()}, batch_size=2, world=sk.World(0, 1))
    >>> [batch["x"].tolist() for batch in LoaderDataset(loader)]
    [[0, 1], [2, 3]]
    """

    def __init__(self, loader: Loader) -> None:
        checked_loader(loader)
        super().__init__()
        self._pass = _Pass(loader)
        self._part = (0, 1)

    @property
    def loader(self) -> Loader:
        """The loader."""
        return self._pass.loader

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Restrict this copy of the dataset to a part of the steps; called by ``mp_prefetch`` in a worker.

        Parameters
        ----------
        sl : slice
            ``slice(k, None, n)`` for worker k of n.
        sequential_slice : bool
            Must be False.

        Raises
        ------
        PlanError
            `sequential_slice` is True.
        """
        if sequential_slice:
            raise PlanError(
                "sequential_slice=True would give each worker a range of the epoch, in another order than the"
                " Loader's: leave it out"
            )
        first, workers = self._part
        self._part = (first + workers * (sl.start or 0), workers * (sl.step or 1))

    def __deepcopy__(self, memo: object) -> LoaderDataset:
        return copy.copy(self)

    def __iter__(self) -> grain.DatasetIterator:
        return _LoaderIterator(self._pass, self._part)

    def __str__(self) -> str:
        return f"LoaderDataset({self.loader!r})"


class _LoaderIterator(grain.DatasetIterator):
    def __init__(self, of: _Pass, part: tuple[int, int]) -> None:
        super().__init__()
        self._pass, self._part = of, part
        self._begin = of.loader.state_dict() if of.begin is None else of.begin
        self._taken = 0
        self._batches: Iterator[tuple[dict[str, Any], Place]] | None = None

    def __next__(self) -> dict[str, Any]:
        if self._batches is None:
            loader = copy.copy(self._pass.loader)
            loader.load_state_dict(self._begin)
            if self._part[1] > 1:
                loader.threads = 1  # there are as many processes
            self._batches = loader.read_ahead(*self._part, skip=self._taken)
        batch, place = next(self._batches)
        self._taken += 1
        if self._pass.has_places:
            batch[_PLACE] = place.to_array()
        return batch

    def get_state(self) -> dict[str, Any]:
        return {"begin": self._begin, "taken": self._taken}

    def set_state(self, state: dict[str, Any]) -> None:
        self._begin, self._taken, self._batches = state["begin"], int(state["taken"]), None

    def close(self) -> None:
        self._batches = None
        self._closed = True

    def __str__(self) -> str:
        return "LoaderDatasetIterator"


class TrackedDataset(grain.IterDataset):
    """Batches of a pipeline over a loader; each one that is handed out moves the loader.

    Parameters
    ----------
    dataset : grain.IterDataset
        Pipeline over `source` that has neither merged, divided, dropped nor reordered its batches, such as
        ``source.map(augment).mp_prefetch(options)``. Its transformations receive the batch with one more
        entry, ``"shardkeep_place"``, and must keep it: ``lambda batch: {**batch, "x": f(batch["x"])}``.
    source : LoaderDataset
        The first step of the pipeline. Its loader moves; do not iterate it elsewhere.

    Notes
    -----
    ``get_state`` of an iterator is the state of the loader after the last batch that was handed out, a few
    hundred bytes for JSON and Orbax; it fits any number of workers, and as that of `Loader` any number of
    ranks and batch size. ``loader.receipt()`` has the same batches.

    A pass that was left before its end begins again at the next ``iter``, so a batch that is only inspected
    is not lost; a pass of which all batches were handed out is followed by the next epoch, also if it was
    ended by count. With ``epochs=None`` the current epoch begins again.

    Steps that read ahead, such as ``grain.experimental.device_put``, may follow: their iterators have the
    state of the batch that they hand out. Take the receipt from the loader then only at the end of a pass.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(6):
    ...         w.write_example({"x": number})
    >>> loader = sk.Loader(w.path, {"x": sk.FixedLen()}, batch_size=2, world=sk.World(0, 1))
    >>> source = LoaderDataset(loader)
    >>> batches = TrackedDataset(source.map(lambda batch: {**batch, "x": -batch["x"]}), source)
    >>> iterator = iter(batches)
    >>> next(iterator)["x"].tolist(), loader.position
    ([0, -1], 2)
    >>> state = iterator.get_state()
    >>> later = iter(batches)
    >>> later.set_state(state)
    >>> [batch["x"].tolist() for batch in later]
    [[-2, -3], [-4, -5]]
    """

    def __init__(self, dataset: grain.IterDataset, source: LoaderDataset) -> None:
        if not isinstance(source, LoaderDataset):
            raise PlanError(f"source must be the LoaderDataset of the pipeline, not {type(source).__name__}")
        super().__init__(dataset)
        self._pass = source._pass
        self._pass.has_places = True
        self._passes = Passes(source.loader)
        self._begin_pass()

    @property
    def loader(self) -> Loader:
        """The loader."""
        return self._pass.loader

    def __iter__(self) -> grain.DatasetIterator:
        return _TrackedIterator(self)

    def __str__(self) -> str:
        return "TrackedDataset"

    def _begin_pass(self) -> int:
        number = self._passes.begin()
        self._pass.begin = self.loader.state_dict()
        return number

    def _hand_out(self, batch: Any, number: int) -> None:
        """Move the loader over a batch of a pass."""
        place = batch.pop(_PLACE, None) if isinstance(batch, dict) else None
        if not isinstance(place, np.ndarray) or place.dtype != np.int64 or place.ndim != 1:
            raise PlanError(
                f"a batch of the pipeline has no entry {_PLACE!r} as its source made it: transformations must"
                " keep it, and one that merges, reorders or converts batches must follow TrackedDataset"
            )
        self._passes.consume(number, Place.from_array(place))


class _TrackedIterator(grain.DatasetIterator):
    def __init__(self, dataset: TrackedDataset) -> None:
        super().__init__()
        self._dataset = dataset
        self._begin()

    def __next__(self) -> Any:
        batch = next(self._batches)
        self._dataset._hand_out(batch, self._number)
        return batch

    def get_state(self) -> dict[str, Any]:
        return self._dataset.loader.state_dict()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._close_batches()
        self._dataset._passes.load_state_dict(state)
        self._begin()

    def start_prefetch(self) -> None:
        self._batches.start_prefetch()

    def close(self) -> None:
        self._close_batches()
        self._closed = True

    def _close_batches(self) -> None:
        # Grain calls this also at the end of Python, when modules have no names any more. Older versions have
        # no such method: their worker processes end with the iterator.
        getattr(self._batches, "close", bool)()

    def __str__(self) -> str:
        return "TrackedDatasetIterator"

    def _begin(self) -> None:
        self._number = self._dataset._begin_pass()
        self._batches = self._dataset._parent.__iter__()
