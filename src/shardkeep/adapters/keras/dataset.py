"""Batches of a loader as a Keras dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.adapters.keras.passes import Passes
from shardkeep.adapters.passes import checked_loader
from shardkeep.errors import PlanError, SchemaError
from shardkeep.loader import Loader
from shardkeep.tfrecord import VarLen

if TYPE_CHECKING:
    import keras
else:
    keras = import_extra("keras", "shardkeep.adapters.keras")

__all__ = ["PyDataset"]


class PyDataset(keras.utils.PyDataset):
    """Batches of a loader for `fit`, `evaluate` and `predict` of a Keras model.

    Parameters
    ----------
    loader : Loader
        Loader of this rank. Its columns must be numbers; it reads and decodes with its own threads.
    x : str or sequence of str
        Column that is the input of the model; several are a dict, for a model with inputs of these names.
    y : str or sequence of str, optional
        Column or columns of the targets.
    sample_weight : str, optional
        Column of weights; 1 for each record by default.

    Raises
    ------
    PlanError
        An epoch of the loader has no step.
    SchemaError
        A column does not exist, or is not made of numbers of one shape.

    Notes
    -----
    A batch is ``(x, y, sample_weight)``. The weight of padded rows (``remainder="mask"``) is 0, so losses
    and ``weighted_metrics`` leave them out; ``metrics`` do not use weights in Keras. A loader with
    ``remainder="short"`` or ``"drop"`` has no padded rows, and its batches are ``(x, y)`` without weights.
    Without `y` a batch is ``(x,)``, padded rows included, for `predict`.

    A pass delivers the epoch where the loader stands. What Keras fetches to inspect it or reads ahead does
    not move the loader; one of the callbacks `LoaderProgress`, `BackupAndRestore` and `WorkerFileLogger`
    moves it with the batches that the model used. Without a callback, as for `validation_data`, each pass
    delivers the same batches.

    With a callback the order is that of the loader, so `fit` needs ``shuffle=False``. There are no
    `workers`: Keras's queue for several of them delivers batches that it fetched for an inspection twice,
    and leaves out others.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(3):
    ...         w.write_example({"x": number, "y": 0.5})
    >>> features = {"x": sk.FixedLen(), "y": sk.FixedLen(dtype="float32")}
    >>> data = PyDataset(sk.Loader(w.path, features, batch_size=2, world=sk.World(0, 1)), "x", "y")
    >>> for x, y, sample_weight in data:
    ...     print(x, y, sample_weight)
    [0 1] [0.5 0.5] [1. 1.]
    [2 0] [0.5 0. ] [1. 0.]
    """

    def __init__(
        self,
        loader: Loader,
        x: str | Sequence[str],
        y: str | Sequence[str] | None = None,
        *,
        sample_weight: str | None = None,
    ) -> None:
        super().__init__()
        checked_loader(loader)
        if not loader.steps_per_epoch:
            raise PlanError("an epoch of this loader has no step, so Keras would have nothing to train on")
        self.loader = loader
        self.x, self.y, self.sample_weight = x, y, sample_weight
        for column in (x, y, sample_weight):
            for name in [column] if isinstance(column, str) else column or ():
                _check_column(loader, name)
        self._passes = Passes(loader)

    @property
    def workers(self) -> int:
        """Always 1: the loader has its own threads."""
        return 1

    @property
    def use_multiprocessing(self) -> bool:
        """Always False: the loader has its own threads."""
        return False

    def __len__(self) -> int:
        """Return the number of batches of a pass; of the whole epoch, if a callback moves the loader."""
        return self.loader.steps_per_epoch if self._passes.has_callback else self.loader.steps_left

    @property
    def num_batches(self) -> int:
        """Number of batches that Keras fetches in the pass that begins now."""
        return self._passes.announce(len(self))

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return a batch of the current pass.

        Parameters
        ----------
        index : int
            Number of the batch from the beginning of the pass.

        Returns
        -------
        tuple
            ``(x, y, sample_weight)``; ``(x, y)`` if the loader does not pad and has no column of
            weights; ``(x,)`` without `y`.

        Raises
        ------
        PlanError
            The pass does not have this batch.
        """
        batch = self._passes.fetch(index)
        x = _part(batch, self.x)
        if self.y is None:
            return (x,)
        y = _part(batch, self.y)
        weights = None if self.sample_weight is None else batch[self.sample_weight].astype(np.float32)
        if "valid" in batch:
            valid = batch["valid"].astype(np.float32)
            weights = valid if weights is None else weights * valid.reshape(-1, *[1] * (weights.ndim - 1))
        return (x, y) if weights is None else (x, y, weights)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over the batches that are left of the epoch; does not move the loader."""
        return (self[index] for index in range(self.loader.steps_left))


def _part(batch: dict[str, Any], names: str | Sequence[str]) -> Any:
    return batch[names] if isinstance(names, str) else {name: batch[name] for name in names}


def _check_column(loader: Loader, name: str) -> None:
    features = loader.features or {}
    feature = features.get(name)
    if feature is None:
        raise SchemaError(
            f"there is no column {name!r}; the features of the loader are {', '.join(features) or 'none'}"
        )
    if isinstance(feature, VarLen) or getattr(feature, "dtype", None) == "bytes":
        raise SchemaError(
            f"column {name!r} is {feature!r}, but a model takes numbers of one shape: use FixedLen or Image"
        )
