"""Steps of a loader for the coordinator of a ParameterServerStrategy."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shardkeep._extras import import_extra
from shardkeep.adapters.passes import Passes
from shardkeep.adapters.tensorflow.columns import batch_spec, flat_arrays, read_tensors
from shardkeep.adapters.tensorflow.dataset import StatefulPasses
from shardkeep.errors import PlanError
from shardkeep.loader import Loader, Place

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = import_extra("tensorflow", "shardkeep.adapters.tensorflow")

__all__ = ["StepReader"]


class StepReader(StatefulPasses):
    """Batches by number, for steps that a `ClusterCoordinator` schedules on any worker.

    A step that is repeated after its worker was killed reads the same batch again.

    Parameters
    ----------
    loader : Loader
        Loader of the coordinator, with ``world=World(0, 1)``: it reads for all workers.

    Notes
    -----
    Iteration yields the numbers of the steps that are left of the loader's run, as int64 tensors. The
    records are read by the coordinator and sent to the worker, as TensorFlow does with every generator.

    After ``coordinator.join()``, `consume` moves the loader over the steps; a checkpoint with this object
    then has their place. As TensorFlow repeats the step of a killed worker as a whole, its update may be
    applied twice; its batch is delivered once.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(4):
    ...         w.write_example({"x": number})
    >>> loader = sk.Loader(w.path, {"x": sk.FixedLen()}, batch_size=2, world=sk.World(0, 1))
    >>> steps = StepReader(loader)
    >>> for number in steps:  # coordinator.schedule(train, args=(number,)), where train calls steps.read
    ...     print(steps.read(number)["x"].numpy())
    [0 1]
    [2 3]
    >>> steps.consume()  # after coordinator.join()
    >>> loader.epoch, loader.position
    (1, 0)
    """

    def __init__(self, loader: Loader) -> None:
        self._passes = Passes(loader)
        if loader.world.size != 1:
            raise PlanError(
                f"the loader has rank {loader.world.rank} of {loader.world.size}, but the coordinator reads"
                " for all workers: pass world=World(0, 1)"
            )
        self.loader = loader
        self._spec = batch_spec(loader)
        # Closures of several workers read at the same time.
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        """Number the steps from the place of the loader on."""
        self._again = copy.copy(self.loader)  # for steps that are repeated
        self._batches = self.loader.read_ahead()
        self._numbered = self._read_ahead = self._consumed = 0
        self._waiting: dict[int, Any] = {}
        self._places: dict[int, Place] = {}
        self._first_of: dict[int, int] = {}  # number of the first step, by epoch

    def __iter__(self) -> Iterator[Any]:
        with self._lock:
            self._begin()
        # Of a loader with epochs=None there is always a next step.
        steps = None if self.loader.epochs is None else len(self.loader)
        while steps is None or self._numbered < steps:
            self._numbered += 1
            yield tf.constant(self._numbered - 1, tf.int64)

    def __len__(self) -> int:
        """Return the number of steps that are left."""
        return len(self.loader)

    def read(self, number: Any) -> dict[str, Any]:
        """Return the batch of a step, in the function that the coordinator schedules.

        Parameters
        ----------
        number : Tensor
            Number from the iteration.

        Returns
        -------
        dict
            Tensors by column, as in `to_dataset`.
        """
        return read_tensors(self._spec, self._read, number)

    def _read(self, number: int) -> list[Any]:
        number = int(number)
        with self._lock:
            while number >= self._read_ahead:
                self._waiting[self._read_ahead], place = next(self._batches)
                self._places[self._read_ahead] = place
                self._first_of.setdefault(place.epoch, self._read_ahead)
                self._read_ahead += 1
            batch = self._waiting.pop(number, None)
            if batch is None:
                epoch = self._places[number].epoch
                batch = self._again.batch(number - self._first_of[epoch], epoch)
        return flat_arrays(self._spec, batch)

    def consume(self) -> None:
        """Move the loader over all steps whose numbers the iteration has yielded.

        Raises
        ------
        PlanError
            One of them was not made yet.
        """
        with self._lock:
            missing = next(
                (
                    i
                    for i in range(self._consumed, self._numbered)
                    if i not in self._places or i in self._waiting
                ),
                None,
            )
            if missing is not None:
                raise PlanError(
                    f"step {missing} was scheduled but not read: call coordinator.join() before consume()"
                )
            for number in range(self._consumed, self._numbered):
                self.loader.consume(self._places.pop(number))
                self._consumed += 1
