"""Loader of batches: plan, shards and decoding together.

`loader` has the public class, `resumable` its position, states and receipts. `sources` has the shards and
their order, `schedule` the plan of each epoch, `steps` the records of each step, `cursor` the progress, and
`batch_reader` reads ahead with the Rust engine. `iterator` has the two iterations: one moves the loader, the
other delivers the `place` of each batch, which the loader consumes later. `numbered` delivers batches by
number. `callers` refuses frameworks that would lose records. Other rooms import `callers`, `cursor`,
`dataset` and `sources`.
"""

from shardkeep._lazy import public_names
from shardkeep.loader.loader import Loader
from shardkeep.loader.place import Place

__all__ = ["Loader", "Place"]

__dir__ = public_names(__name__)
