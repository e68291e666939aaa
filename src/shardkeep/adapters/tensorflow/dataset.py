"""Dataset of the batches of a loader."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.adapters.passes import Passes
from shardkeep.adapters.tensorflow.columns import batch_spec
from shardkeep.adapters.tensorflow.generator import ENDLESS, generated, in_caller
from shardkeep.loader import Loader, Place

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = import_extra("tensorflow", "shardkeep.adapters.tensorflow")

__all__ = ["LoaderDataset", "ShardkeepDataset", "StatefulPasses", "to_dataset"]


class LoaderDataset(tf.data.Dataset):
    """A dataset with the length of a loader; base of `ShardkeepDataset`.

    Parameters
    ----------
    loader : Loader
    dataset : tf.data.Dataset
        Pipeline of the batches.
    """

    def __init__(self, loader: Loader, dataset: Any) -> None:
        options = tf.data.Options()
        options.deterministic = True
        # The loader is the rank's part already.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        # TensorFlow would otherwise add a prefetch, which uses two batches more than were handed out.
        options.experimental_optimization.inject_prefetch = False
        # Nothing here has a parallelism to tune, and the end of an iterator waits for the sleep of the thread
        # that tunes, which grows from 10 ms to a minute while the iterator lives.
        options.autotune.enabled = False
        self.loader = loader
        self._dataset = dataset.with_options(options)
        super().__init__(self._dataset._variant_tensor)

    @property
    def element_spec(self) -> Any:
        """The specs of a batch."""
        return self._dataset.element_spec

    def cardinality(self) -> Any:
        """Return the number of batches of a whole pass, as an int64 tensor.

        It stays the same where a resumed pass is shorter, since Keras takes it for every epoch. With
        ``epochs=None`` it is `tf.data.INFINITE_CARDINALITY`.

        Returns
        -------
        Tensor
        """
        epochs = self.loader.epochs
        steps = tf.data.INFINITE_CARDINALITY if epochs is None else epochs * self.loader.steps_per_epoch
        return tf.constant(steps, tf.int64)

    def _inputs(self) -> list[Any]:
        return [self._dataset]


class StatefulPasses(tf.train.experimental.PythonState):
    """Passes over a loader with a state for `tf.train.Checkpoint`; base of what iterates over a loader."""

    _passes: Passes

    def serialize(self) -> str:
        """Return the state of the loader, for `tf.train.Checkpoint`.

        Returns
        -------
        str
        """
        return json.dumps(self._passes.loader.state_dict())

    def deserialize(self, string_value: bytes) -> None:
        """Move the loader to a state, for `tf.train.Checkpoint`; the iterators so far end.

        Parameters
        ----------
        string_value : bytes
            A result of `serialize`.
        """
        self._passes.load_state_dict(json.loads(string_value))


class ShardkeepDataset(LoaderDataset, StatefulPasses):
    """Batches of a loader as a `tf.data.Dataset` with a state; `to_dataset` makes it.

    Attributes
    ----------
    loader : Loader
        The loader, which stands after the last batch that was handed out.
    """

    def __init__(
        self,
        loader: Loader,
        map_func: Callable[[dict[str, Any]], Any] | None = None,
        num_parallel_calls: int | None = None,
    ) -> None:
        passes = self._passes = Passes(loader)
        spec = batch_spec(loader)
        places: dict[int, tuple[int, Place]] = {}  # pass and place, by the number of the batch

        def begin(first: int) -> tuple[Iterator[dict[str, Any]], int]:
            number = passes.begin()
            places.clear()
            return read(number, first), ENDLESS if loader.epochs is None else len(loader)

        def read(number: int, first: int) -> Iterator[dict[str, Any]]:
            for i, (batch, place) in enumerate(loader.read_ahead(), first):
                if map_func is None:
                    passes.consume(number, place)  # handed out by the thread that asks for it
                else:
                    places[i] = number, place
                yield batch

        def consume(i: Any) -> np.bool_:
            # A pass that was replaced has no places; 0 is the number of no pass.
            passes.consume(*places.pop(int(i), (0, Place(0, 0, 0, 0))))
            return np.True_

        def used(i: Any, batch: Any) -> Any:
            tensors = filter(tf.is_tensor, tf.nest.flatten(batch, expand_composites=True))
            with tf.control_dependencies(list(tensors)):
                tf.numpy_function(consume, [i], tf.bool)
            return batch

        dataset = generated(begin, spec, numbered=map_func is not None)
        if map_func is not None:
            dataset = dataset.map(lambda i, batch: (i, map_func(batch)), num_parallel_calls)
            dataset = in_caller(dataset, used)
        super().__init__(loader, dataset)


def to_dataset(
    loader: Loader,
    map_func: Callable[[dict[str, Any]], Any] | None = None,
    num_parallel_calls: int | None = None,
) -> ShardkeepDataset:
    """Return a `tf.data.Dataset` of the batches of a loader.

    Parameters
    ----------
    loader : Loader
        Loader of this rank. The dataset moves it; do not iterate it elsewhere.
    map_func : callable, optional
        Function of a batch, traced as that of `tf.data.Dataset.map`: what it returns is the element, such
        as ``(x, y, weights)`` for Keras.
    num_parallel_calls : int, optional
        Number of batches that `map_func` processes at a time, or `tf.data.AUTOTUNE`; the order stays.

    Returns
    -------
    ShardkeepDataset
        A dataset of dicts of tensors. `FixedLen` and `Image` are tensors with static shapes, `VarLen` is a
        `tf.RaggedTensor`, bytes and raw records are strings.

    Raises
    ------
    PlanError
        `loader` is not a Loader.

    Notes
    -----
    The loader moves when a batch is handed out, not when it is read ahead: its `state_dict` and `receipt`
    have the batches that were handed out. ``tf.train.Checkpoint(model=model, data=dataset)`` saves and
    restores this place. It fits any number of ranks and any batch size.

    A pass that was left before its end begins again at the next iteration, so a batch that Keras only
    inspects is not lost; a pass of which all batches were handed out is followed by the next epoch, also if
    it was ended by count. With ``epochs=None`` the current epoch begins again.

    What is added after this dataset and reads ahead (``prefetch``, a parallel ``map``) takes batches that
    were not used yet; pass `map_func` instead. Under a strategy use `distribute`.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(4):
    ...         w.write_example({"x": number})
    >>> loader = sk.Loader(w.path, {"x": sk.FixedLen()}, batch_size=2, world=sk.World(0, 1))
    >>> dataset = to_dataset(loader, lambda batch: batch["x"])
    >>> dataset.element_spec, len(dataset)
    (TensorSpec(shape=(2,), dtype=tf.int64, name=None), 2)
    >>> for batch in dataset:
    ...     print(batch.numpy(), loader.position)
    [0 1] 2
    [2 3] 0
    """
    return ShardkeepDataset(loader, map_func, num_parallel_calls)
