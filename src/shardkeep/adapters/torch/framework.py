"""PyTorch, or the error that names the command which installs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardkeep._extras import import_extra

if TYPE_CHECKING:
    import torch
    import torch.utils.data
else:
    torch = import_extra("torch", "shardkeep.adapters.torch")
    import_extra("torch.utils.data", "shardkeep.adapters.torch")

__all__ = ["torch"]
