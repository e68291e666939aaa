"""Dataset of arrays that Python makes, without `tf.data.Dataset.from_generator`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.errors import PlanError

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = import_extra("tensorflow", "shardkeep.adapters.tensorflow")

__all__ = ["generated"]


@dataclass
class _Pass:
    """A pass over the iterator, with the number of elements that are left."""

    number: int
    arrays: Iterator[Sequence[Any]]
    left: int


def generated(begin: Callable[[], tuple[Iterator[Sequence[Any]], int]], specs: Sequence[Any]) -> Any:
    """Return a dataset whose elements are tuples of the arrays that a Python iterator makes.

    `tf.data.Dataset.from_generator` would fix malloc's threshold for mappings at 128 KiB in the whole process
    (on Linux), so that every large array, also one of a model, is a new mapping: of a batch of 3 MB each page
    would be faulted in, which took 40 % of the processor time.

    Parameters
    ----------
    begin : callable
        Function that begins a pass: it returns an iterator over arrays, and the number of elements. The
        iterator of the pass before ends.
    specs : sequence of TensorSpec
        Specs of the arrays of an element.
    """
    current = _Pass(0, iter(()), 0)

    def begin_pass() -> list[np.int64]:
        nonlocal current
        current = _Pass(current.number + 1, *begin())
        return [np.int64(current.number), np.int64(current.left)]

    def take(number: int) -> Sequence[Any]:
        reading = current  # a thread of a replaced iterator may be here
        if number != reading.number:
            raise PlanError("this iterator is over: its dataset was iterated again; use the later iterator")
        taken = next(reading.arrays)
        reading.left -= 1
        if not reading.left:
            reading.arrays = iter(())  # ends the threads of the loader
        return taken

    def computed(function: Callable[..., Any], arguments: list[Any], of: Sequence[Any]) -> tuple[Any, ...]:
        tensors = tf.numpy_function(function, arguments, [one.dtype for one in of])
        for tensor, one in zip(tensors, of, strict=True):
            tensor.set_shape(one.shape)
        return tuple(tensors)

    def elements(_: Any) -> Any:
        number, count = computed(begin_pass, [], [tf.TensorSpec([], tf.int64)] * 2)
        return tf.data.Dataset.range(count).map(lambda _: computed(take, [number], specs))

    return tf.data.Dataset.from_tensors(0).flat_map(elements)
