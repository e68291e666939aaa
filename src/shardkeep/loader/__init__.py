"""Loader of batches: plan, shards and decoding together.

`loader` has the public class, `resumable` its position, states and receipts. `sources` has the shards and
their order, `schedule` the plan of each epoch, `steps` the records of each step, `cursor` the progress, and
`iterator` reads ahead with the Rust engine.
"""

from shardkeep._lazy import public_names
from shardkeep.loader.loader import Loader

__all__ = ["Loader"]

__dir__ = public_names(__name__)
