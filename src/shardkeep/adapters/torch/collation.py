"""Rows of a map-style dataset as a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardkeep.adapters.torch.framework import torch

__all__ = ["collate"]


def collate(rows: Sequence[Any]) -> Any:
    """Return a batch of rows, as torch's `default_collate`, in pinned memory where there is an accelerator.

    `default_collate` stacks tensors in pageable memory, and ``DataLoader(pin_memory=True)`` then copies the
    batch into pinned memory. With ``collate_fn=collate`` the rows of a DataLoader without workers are written
    into pinned memory directly, and torch leaves a pinned tensor as it is. In a worker, and without an
    accelerator, it is `default_collate`, which writes the rows of a worker directly into shared memory.

    Parameters
    ----------
    rows : sequence
        Items of a dataset: tensors, numbers, strings, or dicts, tuples and lists of them.

    Returns
    -------
    object
        Of the structure of an item.

    Raises
    ------
    RuntimeError
        Tensors have different shapes.

    Examples
    --------
    >>> collate([{"x": torch.tensor([1, 2])}, {"x": torch.tensor([3, 4])}])
    {'x': tensor([[1, 2],
            [3, 4]])}
    """
    module = torch.utils.data._utils.collate
    if torch.utils.data.get_worker_info() is not None or not torch.cuda.is_available():
        return module.default_collate(rows)
    functions = {**module.default_collate_fn_map, torch.Tensor: _stack_pinned}
    return module.collate(rows, collate_fn_map=functions)


def _stack_pinned(tensors: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    first = tensors[0]
    if first.device.type != "cpu" or first.layout != torch.strided or first.is_nested:
        return torch.utils.data._utils.collate.collate_tensor_fn(tensors)
    pinned = torch.empty((len(tensors), *first.shape), dtype=first.dtype, pin_memory=True)
    return torch.stack(tuple(tensors), out=pinned)
