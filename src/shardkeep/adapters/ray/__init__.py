"""Ray Data: a source that reads TFRecord shards, and a sink that publishes a set of them as a whole.

::

    read_tfrecords("train-*.tfrecord", features)             a Dataset of Arrow blocks
    write_tfrecords(dataset, "out-{shard:05d}-of-{shards:05d}.tfrecord")

In Ray Train each worker makes its own `shardkeep.Loader`: `World.detect` takes rank and world size from Ray.
Actors and tasks have no rank: pass each ``world=World(rank, size)``.
"""

from shardkeep._lazy import public_names
from shardkeep.adapters.ray.datasink import TFRecordDatasink, write_tfrecords
from shardkeep.adapters.ray.datasource import TFRecordDatasource, read_tfrecords

__all__ = ["TFRecordDatasink", "TFRecordDatasource", "read_tfrecords", "write_tfrecords"]

__dir__ = public_names(__name__)
