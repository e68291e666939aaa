"""LitData: the records in its chunks, read through its DataLoader."""

import functools

from litdata import StreamingDataLoader, StreamingDataset, optimize

from benchmarks.peer_loop import serve, take
from benchmarks.peers.images import Decoded
from benchmarks.workloads import TABLE, converted, head
from shardkeep.tfrecord import Reader, decode_example


def samples(path, kind):
    for record in Reader(path):
        if kind == "raw":
            yield bytes(record)
            continue
        row = decode_example(record)
        if "image_raw" in row:
            yield {"image": row["image_raw"][0], "label": int(row["label"][0])}
        else:
            yield {name: row[name][0].item() for name in TABLE}


def convert(files, folder):
    for kind in ("raw", "rows"):
        make = functools.partial(samples, kind=kind)
        optimize(make, files, f"{folder}/{kind}", chunk_bytes="64MB", num_workers=1, verbose=False)


def prepare(files):
    if "table" in files[0]:
        files = head(files)
    folder = converted(files, "litdata", convert)
    return [f"{folder}/raw", f"{folder}/rows"]


class Images(Decoded, StreamingDataset):
    """Samples with decoded images."""


# A sample of bytes is a view, which does not cross into the process of a DataLoader.
def loader(folder, batch, *, kind=StreamingDataset, shuffle=False, workers=2, **options):
    data = kind(folder, shuffle=shuffle)
    return StreamingDataLoader(data, batch_size=batch, num_workers=workers, **options)


def raw(files, batch, most):
    return take(loader(files[0], batch, workers=0, collate_fn=list), most)


def shuffled(files, batch, most):
    return take(loader(files[0], batch, shuffle=True, workers=0, collate_fn=list), most)


def resume(files, batch, most):
    before = loader(files[0], batch, shuffle=True, workers=0, collate_fn=list)
    batches = iter(before)
    for _ in range(len(before) // 2):
        next(batches)
    state = before.state_dict()
    yield
    after = loader(files[0], batch, shuffle=True, workers=0, collate_fn=list)
    after.load_state_dict(state)
    next(iter(after))
    yield 1


def table(files, batch, most):
    return take(loader(files[1], batch), most, lambda rows: len(rows["label"]))


def png(files, batch, most):
    return take(loader(files[1], batch, kind=Images), most, lambda rows: len(rows[1]))


JOBS = {"raw": raw, "shuffled": shuffled, "resume": resume, "table": table, "png": png}

if __name__ == "__main__":
    serve(JOBS, "litdata torch", prepare)
