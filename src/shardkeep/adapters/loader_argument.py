"""Check of the loader that an adapter receives."""

from __future__ import annotations

from shardkeep.errors import PlanError
from shardkeep.loader import Loader

__all__ = ["checked_loader"]


def checked_loader(loader: object) -> Loader:
    """Return `loader`, or raise a `PlanError` if it is another object."""
    if not isinstance(loader, Loader):
        raise PlanError(f"loader must be a shardkeep.Loader, not {type(loader).__name__}")
    return loader
