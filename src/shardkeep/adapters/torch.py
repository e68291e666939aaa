"""PyTorch: batches of a `Loader` through an `IterableDataset` and a `DataLoader`.

::

    DataLoader(loader, num_workers=n)    a torch DataLoader with state, length and order of the loader
    ShardkeepDataset(loader)             for a plain torch DataLoader(dataset, batch_size=None, ...)

Worker k of n reads the steps k, k + n, … of the rank's plan, and DataLoader asks its workers in turn. So
any number of workers delivers the sequence of the loader, each record once.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.errors import PlanError
from shardkeep.loader import Loader, Place
from shardkeep.tfrecord import Ragged

if TYPE_CHECKING:
    import torch
    import torch.utils.data
else:
    torch = import_extra("torch", "shardkeep.adapters.torch")
    import_extra("torch.utils.data", "shardkeep.adapters.torch")

__all__ = ["DataLoader", "RaggedTensors", "ShardkeepDataset"]

# A state is a few hundred bytes, and with shard_by="files" four numbers for each change of the world size.
_STATE_BYTES = 1 << 16
_PLACE = "shardkeep_place"
_REFUSED = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "collate_fn"}


class RaggedTensors(NamedTuple):
    """Rows of different lengths: row i is ``values[offsets[i]:offsets[i + 1]]``.

    Attributes
    ----------
    values : Tensor or list of bytes
    offsets : Tensor
        int64 of shape (rows + 1,).
    """

    values: Any
    offsets: torch.Tensor

    def nested(self) -> torch.Tensor:
        """Return the rows as a nested tensor with the layout `torch.jagged`."""
        return torch.nested.nested_tensor_from_jagged(self.values, self.offsets)


class ShardkeepDataset(torch.utils.data.IterableDataset[dict[str, Any]]):
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

    def __init__(self, loader: Loader) -> None:
        if not isinstance(loader, Loader):
            raise PlanError(f"loader must be a shardkeep.Loader, not {type(loader).__name__}")
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
        for batch, place in loader.read_ahead(*part):
            tensors = {name: _tensors(column) for name, column in batch.items()}
            if self._with_place:
                tensors[_PLACE] = torch.from_numpy(place.to_array())
            yield tensors

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


class DataLoader(torch.utils.data.DataLoader[dict[str, Any]]):
    """Torch DataLoader over a loader, with its order, its length and its state.

    Parameters
    ----------
    loader : Loader
        Loader of this rank, made in the main process. This object moves it; do not iterate it elsewhere.
    num_workers : int
        Number of processes that read. 0, the default, is the fastest unless a transform in Python is slow:
        the loader has its own threads, and every batch of a worker is copied through shared memory.
    **options
        Options of `torch.utils.data.DataLoader`, such as `pin_memory`, `persistent_workers` and
        `multiprocessing_context`. Those that choose, order or divide samples are refused: `batch_size`,
        `shuffle`, `sampler`, `batch_sampler`, `drop_last`, `collate_fn`, and ``in_order=False``.

    Notes
    -----
    The loader moves when a batch is handed out, not when it is read ahead: `state_dict` and
    ``loader.receipt()`` have the batches that were handed out. A pass that was left before its end begins
    again at the next iteration, as with every DataLoader, so a batch that a framework only inspects is not
    lost; a pass of which all batches were handed out is followed by the next epoch, also if it was ended by
    count.

    ``len`` is the number of batches of the pass: those that were handed out, and those that are left.

    A state fits any `num_workers`, and as that of `Loader` any number of ranks and batch size.

    Do not pass it to ``accelerate.Accelerator.prepare``, which would divide the batches a second time: rank
    and world size come from the loader.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(4):
    ...         w.write_example({"x": number})
    >>> batches = DataLoader(sk.Loader(w.path, {"x": sk.FixedLen()}, batch_size=2, world=sk.World(0, 1)))
    >>> for epoch in range(2):
    ...     print(len(batches), [batch["x"].tolist() for batch in batches])
    2 [[0, 1], [2, 3]]
    2 [[0, 1], [2, 3]]
    """

    def __init__(self, loader: Loader, num_workers: int = 0, **options: Any) -> None:
        refused = _REFUSED & options.keys()
        if refused or options.get("in_order") is False:
            name = min(refused, default="in_order=False")
            raise PlanError(
                f"{name} is not an option here: the batches and their order come from the Loader:"
                " set batch_size, shuffle and remainder there"
            )
        dataset = ShardkeepDataset(loader)
        dataset._with_place = True
        super().__init__(dataset, batch_size=None, num_workers=num_workers, **options)
        self.loader = loader
        self._ends: bool
        self._handed_out: int
        self._begin_pass(0)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._ends:
            self._begin_pass(0)
        elif self._handed_out != self._handed_out_before:
            self.loader.load_state_dict(self._begin)
            self._handed_out = self._handed_out_before
        self.dataset._publish()
        return self._pass(super().__iter__())

    def _pass(self, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for batch in batches:
            place = Place.from_array(batch.pop(_PLACE))
            self.loader.consume(place)
            self._handed_out += 1
            # A run ends before each epoch that is a multiple of its number of epochs.
            epochs = self.loader.epochs
            self._ends = (
                epochs is not None and place.next_epoch > place.epoch and not place.next_epoch % epochs
            )
            yield batch
        self._ends = True

    def __len__(self) -> int:
        return len(self.loader) + (0 if self._ends else self._handed_out)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch that was handed out.

        Returns
        -------
        dict
            The state of the loader, with the number of batches of this pass that were handed out.
        """
        return {**self.loader.state_dict(), "batches": 0 if self._ends else self._handed_out}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move the loader to a state of `state_dict`, or of `Loader.state_dict`.

        Parameters
        ----------
        state : mapping
            The state, of any rank.

        Raises
        ------
        PlanError
            The state belongs to another data set, shuffle or seed.
        """
        self.loader.load_state_dict(state)
        self._begin_pass(int(state.get("batches", 0)))

    def _begin_pass(self, handed_out: int) -> None:
        self._begin = self.loader.state_dict()
        self._handed_out = self._handed_out_before = handed_out
        self._ends = False


def _tensors(column: Any) -> Any:
    if isinstance(column, Ragged):
        return RaggedTensors(_tensors(column.values), torch.from_numpy(column.offsets))
    # Tensors have no byte strings.
    return column if column.dtype == object else torch.from_numpy(column)
