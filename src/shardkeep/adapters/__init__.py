"""Adapters, one for each framework, in its own protocol, names and types.

Each imports its framework, and none is imported before its first use. `torch` has the iterable dataset and
the DataLoader.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardkeep.adapters import torch
else:
    from shardkeep._lazy import lazily

    __getattr__, __dir__ = lazily(__name__, {"shardkeep.adapters.torch": "torch"})

__all__ = ["torch"]
