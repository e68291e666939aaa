"""Torch DataLoader with the order, the length and the state of a loader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardkeep.adapters.passes import Passes, checked_loader
from shardkeep.adapters.torch import lightning
from shardkeep.adapters.torch.dataset import PLACE, ShardkeepDataset, UnsizedDataset
from shardkeep.adapters.torch.framework import torch
from shardkeep.errors import PlanError
from shardkeep.loader import Loader, Place

__all__ = ["DataLoader"]

_REFUSED = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "collate_fn"}


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

    ``len`` is the number of batches of a whole pass, also before a resumed one, which has fewer: frameworks
    take it once for all epochs, and add what a checkpoint counted.

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
        is_sized = checked_loader(loader).epochs is not None
        dataset = ShardkeepDataset(loader) if is_sized else UnsizedDataset(loader)
        dataset._with_place = True
        super().__init__(dataset, batch_size=None, num_workers=num_workers, **options)
        self.loader = loader
        self._passes = Passes(loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        state = lightning.unread_state(self)
        if state is not None:
            self.load_state_dict(state)
        number = self._passes.begin()
        self.dataset._publish()
        return self._pass(number, super().__iter__())

    def _pass(self, number: int, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for batch in batches:
            self._passes.consume(number, Place.from_array(batch.pop(PLACE)))
            yield batch

    def __len__(self) -> int:
        if self.loader.epochs is None and lightning.is_calling():
            raise PlanError(
                "Lightning reads a batch ahead of a loader with epochs=None, so its checkpoints would skip"
                " one: set epochs=1 in the Loader, and max_steps or max_epochs in the Trainer"
            )
        return len(self.loader if self.loader.epochs is None else self.dataset)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch that was handed out.

        Returns
        -------
        dict
            The state of the loader, with the number of batches before it in this pass.
        """
        return {**self.loader.state_dict(), "batches": self._made()}

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
        self._passes.load_state_dict(state)
        if lightning.is_calling():
            # The length of an epoch that Lightning knows is that of this world and batch size.
            before, now = int(state.get("batches", 0)), self._made()
            if before != now:
                lightning.correct_count(before, now)

    def _made(self) -> int:
        return 0 if self.loader.epochs is None else len(self.dataset) - len(self.loader)

    @property
    def _is_accelerate_prepared(self) -> bool:
        # accelerate asks for it before it makes another DataLoader of this one's dataset.
        raise PlanError(
            "accelerate's prepare() would divide the batches a second time, and their state would be lost: do"
            " not pass this DataLoader to prepare(), since the Loader has rank and world size"
        )
