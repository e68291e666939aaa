"""Shardkeep's side of the tables of TFRecord."""

import os
import resource
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.peer_loop import serve, take
from benchmarks.workloads import IMAGE, TABLE, table_rows
from shardkeep import Image, Loader, World, verify
from shardkeep.jobs.salvage.records import salvage_records
from shardkeep.tfrecord import Reader, Writer, build_index, read_columns

PNG = {"image_raw": Image(), "label": IMAGE["label"]}
JPEG = {"image_raw": Image(dtype="uint8"), "label": IMAGE["label"]}


ALONE = World(0, 1)


def loader(files, batch, features=None, world=ALONE, **options):
    return Loader(files, features, batch, world, **options)


def loaded(features=None, **options):
    """Return a job that reads an epoch."""

    def run(files, batch, most):
        return take(loader(files, batch, features, **options), most, lambda rows: int(rows["valid"].sum()))

    return run


def first(features=None, **options):
    """Return a job that makes a loader and takes one batch."""

    def run(files, batch, most):
        next(iter(loader(files, batch, features, **options)))
        return 1

    return run


def resume(files, batch, most):
    before = loader(files, batch, shuffle="global", seed=1)
    batches = iter(before)
    for _ in range(len(before) // 2):
        next(batches)
    state = before.state_dict()
    yield
    after = loader(files, batch, shuffle="global", seed=1)
    after.load_state_dict(state)
    next(iter(after))
    yield 1


def one_by_one(files, batch, most):
    return sum(1 for path in files for _ in Reader(path))


def columns(files, batch, most):
    return len(read_columns(files, TABLE)["label"])


def index(files, batch, most):
    # The index is not stored, so that only the scan is measured.
    os.environ["SHARDKEEP_INDEX"] = "off"
    try:
        return sum(index.records for index in build_index(files))
    finally:
        del os.environ["SHARDKEEP_INDEX"]


def checked(files, batch, most):
    return sum(file.items or 0 for file in verify(files).files)


def limited(job):
    """Return a job with a limit of 64 open files, which does not change afterwards."""

    def run(files, batch, most):
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        return JOBS[job](files, batch, most)

    return run


def checked_file(files, batch, most):
    verify(files)
    return 1


def repair(files, batch, most):
    output = f"{files[0]}.repaired"
    yield
    salvage_records(files[0], output, exists="replace", tick=lambda _: None)
    yield 1
    os.unlink(output)  # replacing it would add half a second to the next round: ext4 frees the blocks then


def random(files, batch, most):
    reader = Reader(files[0])
    return len(reader.read_many(np.random.default_rng(0).integers(0, len(reader), batch)))


def write(files, batch, most):
    rows = table_rows(batch)
    with tempfile.TemporaryDirectory(dir=Path(files[0]).parent) as folder, Writer(f"{folder}/x") as writer:
        yield
        writer.write_examples(rows)
        writer.close()
        yield batch


JOBS = {
    "raw": loaded(),
    "shuffled": loaded(shuffle="global"),
    "one by one": one_by_one,
    "table": loaded(TABLE),
    "table shuffled": loaded(TABLE, shuffle="global"),
    "table blocks": loaded(TABLE, shuffle="blocks"),
    "table files": loaded(TABLE, shuffle="blocks", shard_by="files"),
    "columns": columns,
    "resume": resume,
    "first": first(TABLE),
    "first shuffled": first(TABLE, shuffle="global"),
    "png": loaded(PNG),
    "jpeg": loaded(JPEG),
    "index": index,
    "verify": checked,
    "verify file": checked_file,
    "repair": repair,
    "random": random,
    "write": write,
    "limited raw": limited("raw"),
    "limited shuffled": limited("shuffled"),
    **{
        f"rank {rank} of {ranks}": loaded(shuffle="global", world=World(rank, ranks))
        for ranks in (1, 2, 4, 8)
        for rank in range(ranks)
    },
}

if __name__ == "__main__":
    serve(JOBS, "numpy h5py")
