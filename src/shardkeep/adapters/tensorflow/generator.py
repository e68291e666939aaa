"""Dataset of batches that Python makes, without `tf.data.Dataset.from_generator`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.adapters.tensorflow.columns import flat_arrays, read_tensors
from shardkeep.errors import PlanError

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = import_extra("tensorflow", "shardkeep.adapters.tensorflow")

map_op: Any = import_extra("tensorflow.python.data.ops.map_op", "shardkeep.adapters.tensorflow")

ENDLESS = 1 << 40
"""Number of batches of a pass without an end. Those of all passes have different int64 numbers."""

__all__ = ["ENDLESS", "generated", "in_caller"]


@dataclass
class _Pass:
    """A pass over the iterator, with the numbers of its batches."""

    batches: Iterator[Mapping[str, Any]]
    start: int
    stop: int


def in_caller(dataset: Any, function: Callable[..., Any]) -> Any:
    """Return ``dataset.map(function)``, but run in the thread that asks for an element.

    `tf.data.Dataset.map` has no option for this: it hands each element to another thread and waits, which
    costs more than what the functions of these adapters do. They must not contain control flow.
    """
    return map_op._MapDataset(dataset, function, use_inter_op_parallelism=False)


def generated(
    begin: Callable[[int], tuple[Iterator[Mapping[str, Any]], int]],
    spec: Mapping[str, Any],
    numbered: bool = False,
) -> Any:
    """Return a dataset of the batches that a Python iterator makes.

    `tf.data.Dataset.from_generator` would fix malloc's threshold for mappings at 128 KiB in the whole process
    (on Linux), so that every large array, also one of a model, is a new mapping: of a batch of 3 MB each page
    would be faulted in, which took 40 % of the processor time.

    Parameters
    ----------
    begin : callable
        Function that begins a pass: it receives the number of its first batch, and returns an iterator over
        batches and their number. The iterator of the pass before ends.
    spec : mapping
        The result of `batch_spec`.
    numbered : bool
        True for elements ``(number, batch)``; the number is unique in the dataset.
    """
    current = _Pass(iter(()), 0, 0)

    def begin_pass() -> list[np.int64]:
        nonlocal current
        start = current.stop
        batches, count = begin(start)
        current = _Pass(batches, start, start + count)
        return [np.int64(current.start), np.int64(current.stop)]

    def take(number: int) -> list[Any]:
        reading = current  # a thread of a replaced iterator may be here
        if not reading.start <= number < reading.stop:
            raise PlanError("this iterator is over: its dataset was iterated again; use the later iterator")
        batch = next(reading.batches)
        if number + 1 == reading.stop:
            reading.batches = iter(())  # ends the threads of the loader
        return flat_arrays(spec, batch)

    def element(number: Any) -> Any:
        batch = read_tensors(spec, take, number)
        return (number, batch) if numbered else batch

    def elements(_: Any) -> Any:
        start, stop = tf.numpy_function(begin_pass, [], [tf.int64] * 2)
        start.set_shape([])
        stop.set_shape([])
        return in_caller(tf.data.Dataset.range(start, stop), element)

    return tf.data.Dataset.from_tensors(0).flat_map(elements)
