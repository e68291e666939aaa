"""TFRecords read by many processes: TensorFlow's tf.data on three workers.

That several readers of one file damage it, or each other's records, is a myth: each has its own position. But
`list_files` shuffles the files, in another order on each worker, so that `shard` takes some files twice and
others not at all.

    python examples/recipes/tensorflow_records.py
"""

from __future__ import annotations

import sys
import tempfile

import tensorflow as tf
from recipe import Processes, finish, heading, show, write_shards

import shardkeep as sk
from shardkeep.adapters.tensorflow import to_dataset

WORKERS = 3
COUNTS = (400, 50, 7, 43, 100, 60, 30, 90, 20, 5, 80, 15)
FEATURES = {"number": tf.io.FixedLenFeature([], tf.int64)}


def numbers(records: tf.data.Dataset) -> list[int]:
    parsed = records.map(lambda record: tf.io.parse_single_example(record, FEATURES))
    return [int(example["number"]) for example in parsed]


def one_file(worker: int, path: str) -> list[int]:
    """RIGHT: all read the same file, each all of it."""
    return numbers(tf.data.TFRecordDataset(path))


def all_files(worker: int, paths: list[str]) -> list[int]:
    """WRONG: nothing divides the files."""
    return numbers(tf.data.TFRecordDataset(paths))


def files_of_another_order(worker: int, paths: list[str]) -> list[int]:
    """WRONG: each worker divides another order of the files."""
    files = tf.data.Dataset.list_files(paths)
    return numbers(files.shard(WORKERS, worker).interleave(tf.data.TFRecordDataset))


def shared_by_all(worker: int, paths: list[str]) -> list[int]:
    """RIGHT: a Loader reads the part of its worker; all make the same number of steps."""
    loader = sk.Loader(paths, {"number": sk.FixedLen()}, 16, sk.World(worker, WORKERS), shuffle="global")
    found: list[int] = []
    for batch in to_dataset(loader):
        found += batch["number"][batch["valid"]].numpy().tolist()
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, Processes(WORKERS) as workers:
        paths = write_shards(folder, COUNTS)
        everything = range(sum(COUNTS))
        heading(f"{WORKERS} workers read {sum(COUNTS)} records")
        outcomes = [
            show(
                "one file, read by all at the same time",
                [*range(COUNTS[0])] * WORKERS,
                workers.run(one_file, paths[0]),
            ),
            show("all files on each worker", everything, workers.run(all_files, paths)),
            show("list_files, then shard", everything, workers.run(files_of_another_order, paths)),
            show("a Loader on each worker", everything, workers.run(shared_by_all, paths)),
        ]
    return finish(outcomes, [True, False, False, True])


if __name__ == "__main__":
    sys.exit(main())
