"""Tensors of columns and of single rows, without a copy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from shardkeep.adapters.torch.framework import torch
from shardkeep.tfrecord import Ragged

__all__ = ["RaggedTensors", "column_tensors", "row_tensor"]


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
        # Since torch 2.5.
        if hasattr(torch.nested, "nested_tensor_from_jagged"):
            return torch.nested.nested_tensor_from_jagged(self.values, self.offsets)
        rows = [self.values[start:stop] for start, stop in pairwise(self.offsets.tolist())]
        return torch.nested.nested_tensor(rows, layout=torch.jagged)


def column_tensors(column: Any) -> Any:
    """Return a column of a batch as a tensor or `RaggedTensors`; byte strings have no tensor and stay."""
    if isinstance(column, Ragged):
        return RaggedTensors(column_tensors(column.values), torch.from_numpy(column.offsets))
    return column if column.dtype == object else torch.from_numpy(column)


def row_tensor(value: Any) -> Any:
    """Return a row as a tensor; byte strings and text as they are, several of them as a list."""
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        return value.tolist() if isinstance(value, np.ndarray) else value
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)
