"""Batches of a loader for the replicas of a strategy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.adapters.passes import Passes
from shardkeep.adapters.tensorflow.columns import batch_spec
from shardkeep.adapters.tensorflow.dataset import LoaderDataset, StatefulPasses
from shardkeep.adapters.tensorflow.generator import ENDLESS, generated
from shardkeep.errors import PlanError
from shardkeep.loader import Loader, Place
from shardkeep.tfrecord import Ragged

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = import_extra("tensorflow", "shardkeep.adapters.tensorflow")

__all__ = ["DistributedBatches", "distribute", "local_rows"]


class DistributedBatches(StatefulPasses):
    """Batches of a loader for the replicas of a strategy, with a state; `distribute` makes it.

    Attributes
    ----------
    loader : Loader
        Loader of this process, which stands after the last step that was handed out.
    dataset : tf.distribute.DistributedDataset
        The batches for a loop in a `tf.function`, or for Keras. It reads ahead, so call `consume` after the
        steps that were made.
    """

    loader: Loader

    def __init__(
        self,
        strategy: Any,
        make_loader: Callable[[Any], Loader],
        map_func: Callable[[dict[str, Any]], Any] | None = None,
        num_parallel_calls: int | None = None,
    ) -> None:
        if isinstance(strategy, tf.distribute.experimental.ParameterServerStrategy):
            raise PlanError(
                "under a ParameterServerStrategy every worker would read every record: schedule the steps of"
                " a shardkeep.adapters.tensorflow.StepReader"
            )
        self._ahead: deque[tuple[int, Place]] = deque()

        def make_dataset(context: Any) -> LoaderDataset:
            loader = make_loader(context)
            self._passes = Passes(loader)
            self.loader = loader
            replicas = _checked_replicas(context, loader)
            rows = loader.batch_size // replicas

            def begin(_: int) -> tuple[Iterator[dict[str, Any]], int]:
                number = self._passes.begin()
                steps = ENDLESS if loader.epochs is None else len(loader)
                return self._read(number, replicas), steps * replicas

            dataset = generated(begin, batch_spec(loader, rows))
            if map_func is not None:
                dataset = dataset.map(map_func, num_parallel_calls)
            return LoaderDataset(loader, dataset)

        self.dataset = strategy.distribute_datasets_from_function(make_dataset)

    def _read(self, number: int, replicas: int) -> Iterator[dict[str, Any]]:
        """Yield the parts of each batch of a pass, one for each replica."""
        ahead = self._ahead = deque()
        for batch, place in self.loader.read_ahead():
            ahead.append((number, place))
            rows = len(next(iter(batch.values())))
            for replica in range(replicas):
                part = slice(rows * replica // replicas, rows * (replica + 1) // replicas)
                yield {name: column[part] for name, column in batch.items()}

    def __iter__(self) -> Iterator[Any]:
        """Iterate over a pass; the loader moves with each step that is handed out."""
        for batch in self.dataset:
            self.consume()
            yield batch

    def __len__(self) -> int:
        """Return the number of steps of a whole pass."""
        if self.loader.epochs is None:
            raise TypeError("the loader has epochs=None, so its batches have no length")
        return self.loader.epochs * self.loader.steps_per_epoch

    def consume(self, steps: int = 1) -> None:
        """Move the loader over steps that were made with `dataset`.

        Parameters
        ----------
        steps : int
            Number of steps since the last call.

        Raises
        ------
        PlanError
            Fewer steps were read.
        """
        for _ in range(steps):
            if not self._ahead:
                raise PlanError("more steps were consumed than read: count each step of `dataset` once")
            self._passes.consume(*self._ahead.popleft())


def _checked_replicas(context: Any, loader: Loader) -> int:
    """Return the number of replicas of this process, which divides its batches."""
    pipelines, pipeline = context.num_input_pipelines, context.input_pipeline_id
    world = loader.world
    if pipelines > 1 and (world.rank, world.size) != (pipeline, pipelines):
        raise PlanError(
            f"the loader has rank {world.rank} of {world.size}, but this process is input pipeline {pipeline}"
            f" of {pipelines}: pass world=World({pipeline}, {pipelines})"
        )
    replicas: int = context.num_replicas_in_sync // pipelines
    if loader.batch_size % replicas:
        raise PlanError(
            f"batch_size={loader.batch_size} cannot be divided among {replicas} replicas: pass the rows of"
            f" all replicas of this process, a multiple of {replicas}"
        )
    return replicas


def distribute(
    strategy: Any,
    make_loader: Callable[[Any], Loader],
    map_func: Callable[[dict[str, Any]], Any] | None = None,
    num_parallel_calls: int | None = None,
) -> DistributedBatches:
    """Return the batches of a loader, divided among the replicas of a strategy.

    Parameters
    ----------
    strategy : tf.distribute.Strategy
        MirroredStrategy, MultiWorkerMirroredStrategy, or another one with
        ``distribute_datasets_from_function``; not a ParameterServerStrategy, for which there is `StepReader`.
    make_loader : callable
        Function of a `tf.distribute.InputContext` that returns the loader of this process. Its `batch_size`
        is the number of rows of a step for all replicas of this process.
    map_func : callable, optional
        Function of the batch of one replica, traced as that of `tf.data.Dataset.map`.
    num_parallel_calls : int, optional
        Number of batches that `map_func` processes at a time, or `tf.data.AUTOTUNE`; the order stays.

    Returns
    -------
    DistributedBatches
        An iterable for ``strategy.run``, with the same passes, length and checkpoints as `to_dataset`.

    Raises
    ------
    PlanError
        The loader has another rank than the strategy gives this process, or its batches cannot be divided
        among the replicas.

    Notes
    -----
    Each step of the loader is one step of all replicas, so no step lacks a replica and no record is dropped.
    All ranks make the same number of steps.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(4):
    ...         w.write_example({"x": number})
    >>> def make_loader(context):
    ...     return sk.Loader(w.path, {"x": sk.FixedLen()}, batch_size=2, world=sk.World(0, 1))
    >>> strategy = tf.distribute.get_strategy()
    >>> for batch in distribute(strategy, make_loader):
    ...     total = strategy.run(lambda batch: batch["x"] * 10, args=(batch,))
    ...     print(local_rows(strategy, total))
    [ 0 10]
    [20 30]
    """
    return DistributedBatches(strategy, make_loader, map_func, num_parallel_calls)


def local_rows(strategy: Any, value: Any) -> Any:
    """Return the rows that the replicas of this process have, as arrays.

    Parameters
    ----------
    strategy : tf.distribute.Strategy
    value : Tensor, PerReplica, or structure of them
        Batch of `distribute` or result of ``strategy.run``.

    Returns
    -------
    ndarray, Ragged, or structure of them
        The rows of the replicas in the order of the loader's batch; of scalars one for each replica.

    Examples
    --------
    >>> local_rows(tf.distribute.get_strategy(), {"x": tf.constant([1, 2])})
    {'x': array([1, 2], dtype=int32)}
    """

    def rows(one: Any) -> Any:
        parts = strategy.experimental_local_results(one)
        if isinstance(parts[0], tf.RaggedTensor):
            joined = tf.concat(parts, 0)
            return Ragged(joined.values.numpy(), joined.row_splits.numpy())
        return np.concatenate([np.atleast_1d(part.numpy()) for part in parts])

    return tf.nest.map_structure(rows, value)
