"""Batches for a training loop: exact, resumable, bounded."""

from shardkeep.loader.loader import Loader

__all__ = ["Loader"]
