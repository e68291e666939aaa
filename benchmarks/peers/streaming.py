"""MosaicML streaming: the records in its MDS files, read through its DataLoader."""

import numpy as np
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from benchmarks.peer_loop import serve, take
from benchmarks.peers.images import Decoded
from benchmarks.workloads import TABLE, converted, head
from shardkeep.tfrecord import Reader, decode_example

IMAGE = {"image": "bytes", "label": "int64"}
COLUMNS = {name: "float32" if name[0] == "f" else "int64" for name in TABLE}


def convert(files, folder):
    is_table = "f00" in decode_example(next(iter(Reader(files[0]))))
    columns = {"raw": {"bin": "bytes"}, "rows": COLUMNS if is_table else IMAGE}
    for kind, types in columns.items():
        with MDSWriter(columns=types, out=f"{folder}/{kind}") as out:
            for path in files:
                for record in Reader(path):
                    out.write(sample(record, kind, is_table))


def sample(record, kind, is_table):
    if kind == "raw":
        return {"bin": bytes(record)}
    row = decode_example(record)
    if not is_table:
        return {"image": row["image_raw"][0], "label": int(row["label"][0])}
    return {name: np.float32(row[name][0]) if name[0] == "f" else int(row[name][0]) for name in TABLE}


def prepare(files):
    clean_stale_shared_memory()
    if "table" in files[0]:
        files = head(files)
    folder = converted(files, "mds", convert)
    return [f"{folder}/raw", f"{folder}/rows"]


class Images(Decoded, StreamingDataset):
    """Samples with decoded images."""


def loader(folder, batch, *, kind=StreamingDataset, shuffle=False, workers=2, **options):
    data = kind(local=folder, shuffle=shuffle, batch_size=batch, num_canonical_nodes=1)
    return StreamingDataLoader(data, batch_size=batch, num_workers=workers, **options)


def raw(files, batch, most):
    return take(loader(files[0], batch, collate_fn=list), most)


def shuffled(files, batch, most):
    return take(loader(files[0], batch, shuffle=True, collate_fn=list), most)


def resume(files, batch, most):
    before = loader(files[0], batch, shuffle=True, workers=0)
    batches = iter(before)
    for _ in range(len(before) // 2):
        next(batches)
    state = before.state_dict()
    del batches, before
    clean_stale_shared_memory()
    yield
    after = loader(files[0], batch, shuffle=True, workers=0)
    after.load_state_dict(state)
    next(iter(after))
    yield 1


def table(files, batch, most):
    return take(loader(files[1], batch), most, lambda rows: len(rows["label"]))


def png(files, batch, most):
    return take(loader(files[1], batch, kind=Images), most, lambda rows: len(rows[1]))


JOBS = {"raw": raw, "shuffled": shuffled, "resume": resume, "table": table, "png": png}

if __name__ == "__main__":
    serve(JOBS, "mosaicml-streaming torch", prepare)
