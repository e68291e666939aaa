"""ArrayRecord read by Grain, with its threads."""

import json

import grain
import numpy as np
from absl import flags
from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter

from benchmarks.peer_loop import serve, take
from benchmarks.peers.images import rgb
from benchmarks.workloads import converted
from shardkeep.tfrecord import Reader, decode_example


def convert(files, folder):
    for number, path in enumerate(files):
        writer = ArrayRecordWriter(f"{folder}/{number:03d}.array_record", "group_size:1,uncompressed")
        for record in Reader(path):
            writer.write(bytes(record))
        writer.close()


def prepare(files):
    folder = converted(files, "array_record", convert)
    return [f"{folder}/{number:03d}.array_record" for number in range(len(files))]


def dataset(files, batch, *, shuffle=False, decode=None):
    found = grain.MapDataset.source(ArrayRecordDataSource(files))
    if shuffle:
        found = found.shuffle(seed=1)
    if decode:
        return found.map(decode).batch(batch).to_iter_dataset()
    return found.batch(batch, batch_fn=list).to_iter_dataset()


def pixels(record):
    row = decode_example(record)
    return rgb(row["image_raw"][0]).astype(np.float32) / 255, row["label"][0]


def raw(files, batch, most):
    return take(dataset(files, batch), most)


def shuffled(files, batch, most):
    return take(dataset(files, batch, shuffle=True), most)


def png(files, batch, most):
    return take(dataset(files, batch, decode=pixels), most, lambda rows: len(rows[1]))


def resume(files, batch, most):
    before = iter(dataset(files, batch, shuffle=True))
    for _ in range(len(ArrayRecordDataSource(files)) // batch // 2):
        next(before)
    state = json.dumps(before.get_state())
    yield
    after = iter(dataset(files, batch, shuffle=True))
    after.set_state(json.loads(state))
    next(after)
    yield 1


JOBS = {"raw": raw, "shuffled": shuffled, "png": png, "resume": resume}

if __name__ == "__main__":
    flags.FLAGS.mark_as_parsed()
    serve(JOBS, "grain array-record", prepare)
