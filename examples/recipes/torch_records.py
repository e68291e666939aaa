"""TFRecords read by many processes: PyTorch's DataLoader on two ranks with two workers each.

That several readers of one file damage it, or each other's records, is a myth: each has its own position. But
an `IterableDataset` is copied to every worker of every rank, and each copy reads everything.

    python examples/recipes/torch_records.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator

from recipe import Processes, finish, heading, show, write_shards
from torch.utils import data

import shardkeep as sk
from shardkeep.adapters.torch import DataLoader

RANKS, WORKERS = 2, 2
COUNTS = (400, 50, 7, 43)


class Records(data.IterableDataset[int]):
    """The numbers in the records of files."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[int]:
        for path in self.paths:
            for record in sk.tfrecord.Reader(path):
                yield int(sk.tfrecord.decode_example(record)["number"][0])


class WorkersRecords(Records):
    """The same, with the files divided among the workers of the DataLoader."""

    def __iter__(self) -> Iterator[int]:
        worker = data.get_worker_info()
        return iter(Records(self.paths[worker.id :: worker.num_workers]))


def one_file(rank: int, path: str) -> list[int]:
    """RIGHT: all read the same file, each all of it."""
    return list(Records([path]))


def every_worker_reads_all(rank: int, paths: list[str]) -> list[int]:
    """WRONG: the files are divided neither among the ranks nor among the workers."""
    batches = data.DataLoader(Records(paths), batch_size=16, num_workers=WORKERS)
    return [int(number) for batch in batches for number in batch]


def every_rank_reads_all(rank: int, paths: list[str]) -> list[int]:
    """WRONG: the workers of one rank share the files, those of the other rank read them again."""
    batches = data.DataLoader(WorkersRecords(paths), batch_size=16, num_workers=WORKERS)
    return [int(number) for batch in batches for number in batch]


def shared_by_all(rank: int, paths: list[str]) -> list[int]:
    """RIGHT: a Loader reads the part of its rank, with any number of workers."""
    loader = sk.Loader(paths, {"number": sk.FixedLen()}, 16, sk.World(rank, RANKS), shuffle="global")
    batches = DataLoader(loader, num_workers=WORKERS)
    return [number for batch in batches for number in batch["number"][batch["valid"]].tolist()]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, Processes(RANKS) as ranks:
        paths = write_shards(folder, COUNTS)
        everything = range(sum(COUNTS))
        heading(f"{RANKS} ranks of {WORKERS} workers read {sum(COUNTS)} records")
        outcomes = [
            show(
                "one file, read by all at the same time",
                [*range(COUNTS[0])] * RANKS,
                ranks.run(one_file, paths[0]),
            ),
            show("a dataset that reads all files", everything, ranks.run(every_worker_reads_all, paths)),
            show("files divided among the workers only", everything, ranks.run(every_rank_reads_all, paths)),
            show("a Loader on each rank", everything, ranks.run(shared_by_all, paths)),
        ]
    return finish(outcomes, [True, False, False, True])


if __name__ == "__main__":
    sys.exit(main())
