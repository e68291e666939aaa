"""vahidk/tfrecord, which checks no checksum: its iterators, and its dataset in a DataLoader of PyTorch."""

import itertools

import numpy as np
from tfrecord.reader import tfrecord_iterator, tfrecord_loader
from tfrecord.torch.dataset import MultiTFRecordDataset
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from benchmarks.peer_loop import serve, take
from benchmarks.peers.images import rgb
from benchmarks.workloads import TABLE

COLUMNS = {name: "float" if name[0] == "f" else "int" for name in TABLE}
IMAGE = {"image_raw": "byte", "label": "int"}


def batches(records, batch):
    """Yield lists of records."""
    while rows := list(itertools.islice(records, batch)):
        yield rows


def one_by_one(files, batch, most):
    return take(records(files), most, lambda record: 1)


def records(files):
    return itertools.chain.from_iterable(map(tfrecord_iterator, files))


def raw(files, batch, most):
    return take(batches((bytes(record) for record in records(files)), batch), most)


class Rows(IterableDataset):
    """A dataset that assigns whole files to workers and yields decoded records."""

    def __init__(self, files, description, decode=None):
        self.files, self.description, self.decode = files, description, decode

    def __iter__(self):
        worker = get_worker_info()
        for path in self.files if worker is None else self.files[worker.id :: worker.num_workers]:
            rows = tfrecord_loader(path, None, self.description)
            yield from map(self.decode, rows) if self.decode else rows


def decoded(row):
    return {"image": rgb(row["image_raw"]), "label": row["label"]}


def pixels(row):
    row = decoded(row)
    return row | {"image": row["image"].astype(np.float32) / 255}


def drained(workers, *arguments):
    """Return a job that reads the rows through a DataLoader."""

    def run(files, batch, most):
        loader = DataLoader(Rows(files, *arguments), batch_size=batch, num_workers=workers)
        return take(loader, most, lambda rows: len(rows["label"]))

    return run


def shuffled(files, batch, most):
    """Draw from all files at random, through a queue of 60,000 records."""
    dataset = MultiTFRecordDataset(
        "{}", None, {path: 1 / len(files) for path in files}, IMAGE, shuffle_queue_size=60_000, infinite=False
    )
    return take(DataLoader(dataset, batch_size=batch, collate_fn=list), most)


def resume(files, batch, most):
    """Read and drop the first half, since this reader has no state."""
    half = sum(1 for _ in records(files)) // 2
    yield
    next(batches(itertools.islice(records(files), half, None), batch))
    yield 1


JOBS = {
    "one by one": one_by_one,
    "raw": raw,
    "shuffled": shuffled,
    "resume": resume,
    "table": drained(0, COLUMNS),
    "table 2": drained(2, COLUMNS),
    "png": drained(0, IMAGE, pixels),
    "png 2": drained(2, IMAGE, pixels),
    "jpeg": drained(0, IMAGE, decoded),
    "jpeg 2": drained(2, IMAGE, decoded),
}

if __name__ == "__main__":
    serve(JOBS, "tfrecord torch")
