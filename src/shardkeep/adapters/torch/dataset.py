"""Batches of a loader as an iterable dataset."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from shardkeep.adapters.passes import checked_loader
from shardkeep.adapters.torch.framework import torch
from shardkeep.adapters.torch.tensors import column_tensors
from shardkeep.errors import PlanError
from shardkeep.loader import Loader
from shardkeep.loader.callers import refuse_division, refuse_skipping

__all__ = ["PLACE", "ShardkeepDataset", "UnsizedDataset"]

PLACE = "shardkeep_place"
"""Name of the entry of a batch that has its place."""

# A state is a few hundred bytes, and with shard_by="files" four numbers for each change of the world size.
_STATE_BYTES = 1 << 16


class UnsizedDataset(torch.utils.data.IterableDataset[dict[str, Any]]):
    """Batches of a loader without a length, which Keras does not ask of a loader with ``epochs=None``.

    Parameters
    ----------
    loader : Loader
    """

    def __init__(self, loader: Loader) -> None:
        checked_loader(loader)
        self.loader = loader
        self._with_place = False
        # Where the next pass begins, for persistent workers: version, length of the state, state. It
        # changes only between passes; a worker that starts late would begin elsewhere.
        self._shared = torch.zeros(16 + _STATE_BYTES, dtype=torch.uint8).share_memory_()
        self._version = 0

    def set_epoch(self, epoch: int) -> None:
        """Move the loader to the beginning of an epoch, for the next pass; does nothing in that epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0; must be the same on every rank.
        """
        self.loader.set_epoch(epoch)
        self._publish()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._with_place:
            refuse_skipping()
        worker = torch.utils.data.get_worker_info()
        loader = self.loader
        if worker is not None:
            loader = copy.copy(loader)
            loader.threads = 1  # there are as many processes
            shared = self._shared.numpy()
            version, length = shared[:16].view(np.int64).tolist()
            if version != self._version:
                loader.load_state_dict(json.loads(shared[16 : 16 + length].tobytes()))
        part = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return _Batches(loader, part, self._with_place)

    def __getstate__(self) -> dict[str, Any]:
        # Before it is sent to a worker, where the caller is not visible.
        if self._with_place:
            refuse_skipping()
        refuse_division(self.loader.world)
        return self.__dict__

    def _publish(self) -> None:
        state = json.dumps(self.loader.state_dict()).encode()
        if len(state) > _STATE_BYTES:
            raise PlanError(
                f"the state of this loader has {len(state)} bytes, more than the {_STATE_BYTES} that workers"
                " can receive: set persistent_workers=False and make a new DataLoader"
            )
        self._version += 1
        shared = self._shared.numpy()
        shared[16 : 16 + len(state)] = np.frombuffer(state, np.uint8)
        shared[:16].view(np.int64)[:] = self._version, len(state)


class ShardkeepDataset(UnsizedDataset):
    """Batches of a loader as a dataset, for torch's ``DataLoader(dataset, batch_size=None)``.

    Parameters
    ----------
    loader : Loader
        Loader of this rank, made in the main process.

    Notes
    -----
    A batch is a dict of tensors, without a copy: columns of bytes are arrays of objects, and rows of
    different lengths are `RaggedTensors`. Each record is delivered once, for any number of workers, with
    fork, spawn and forkserver, and with persistent workers.

    A pass delivers the epoch where the loader stands. A plain DataLoader does not move the loader, so call
    `set_epoch` before each pass, as with torch's DistributedSampler. `shardkeep.adapters.torch.DataLoader`
    moves it by itself, and has a state.

    ``len`` is the number of batches of a whole pass, also before a resumed one, which has fewer.

    The iterator has a state of its worker, so torchdata's ``StatefulDataLoader(dataset, batch_size=None)``
    resumes in mid-epoch with the same number of workers and ranks; others are refused.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(4):
    ...         w.write_example({"x": number})
    >>> loader = sk.Loader(w.path, {"x": sk.FixedLen()}, batch_size=2, world=sk.World(0, 1))
    >>> for batch in torch.utils.data.DataLoader(ShardkeepDataset(loader), batch_size=None, num_workers=2):
    ...     print(batch["x"])
    tensor([0, 1])
    tensor([2, 3])
    """

    def __len__(self) -> int:
        loader = self.loader
        # torch and Keras keep the first length that they got for all later passes.
        return loader.steps_per_epoch * loader.epochs if loader.epochs else len(loader)


class _Batches(Iterator[dict[str, Any]]):
    """The batches of one worker, with the state that torchdata's StatefulDataLoader keeps for each worker."""

    def __init__(self, loader: Loader, part: tuple[int, int], with_place: bool) -> None:
        self._loader, self._part, self._with_place = loader, part, with_place
        self._begin = loader.state_dict()
        self._made = 0
        self._batches = loader.read_ahead(*part)

    def __next__(self) -> dict[str, Any]:
        batch, place = next(self._batches)
        self._made += 1
        tensors = {name: column_tensors(column) for name, column in batch.items()}
        if self._with_place:
            tensors[PLACE] = torch.from_numpy(place.to_array())
        return tensors

    def state_dict(self) -> dict[str, Any]:
        return {"begin": self._begin, "made": self._made, "division": self._division()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["division"] != self._division():
            found, here = (_described(one) for one in (state["division"], self._division()))
            raise PlanError(
                f"the state of this StatefulDataLoader is of {found}, not of {here}: use as many as before,"
                " or shardkeep.adapters.torch.DataLoader, whose state fits any number"
            )
        loader = copy.copy(self._loader)
        loader.load_state_dict(state["begin"])
        self._begin, self._made = state["begin"], state["made"]
        self._batches = loader.read_ahead(*self._part, skip=self._made)

    def _division(self) -> list[int]:
        return [self._part[1], self._loader.world.size, self._loader.batch_size]


def _described(division: list[int]) -> str:
    workers, size, batch_size = division
    return f"{workers} workers on each of {size} ranks with batches of {batch_size}"
