"""tf.data: as in its guides, and the fastest of several variants."""

import tempfile

import numpy as np
import tensorflow as tf

from benchmarks.peer_loop import serve, take
from benchmarks.workloads import table_rows

AUTOTUNE = tf.data.AUTOTUNE
FLOATS = [f"f{i:02d}" for i in range(13)]
INTEGERS = [f"i{i:02d}" for i in range(26)]
TABLE = {name: tf.io.FixedLenFeature([1], tf.float32) for name in FLOATS}
TABLE |= {name: tf.io.FixedLenFeature([1], tf.int64) for name in INTEGERS}
TABLE |= {"label": tf.io.FixedLenFeature([], tf.int64)}
IMAGE = {"image_raw": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def interleaved(paths):
    files = tf.data.Dataset.from_tensor_slices(paths)
    return files.interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=AUTOTUNE)


def in_order(paths):
    return tf.data.TFRecordDataset(paths)


def one_png(record):
    row = tf.io.parse_single_example(record, IMAGE)
    return tf.image.convert_image_dtype(tf.io.decode_png(row["image_raw"], 3), tf.float32), row["label"]


def many_pngs(records):
    rows = tf.io.parse_example(records, IMAGE)
    pixels = tf.map_fn(lambda one: tf.io.decode_png(one, 3), rows["image_raw"], fn_output_signature=tf.uint8)
    return tf.image.convert_image_dtype(pixels, tf.float32), rows["label"]


def one_jpeg(record):
    row = tf.io.parse_single_example(record, IMAGE)
    return tf.io.decode_jpeg(row["image_raw"], 3), row["label"]


DATASETS = {
    "raw usual": lambda p, b: interleaved(p).batch(b).prefetch(2),
    "raw best": lambda p, b: in_order(p).batch(b).prefetch(2),
    "table usual": lambda p, b: (
        interleaved(p).batch(b).map(lambda r: tf.io.parse_example(r, TABLE)).prefetch(2)
    ),
    "table best": lambda p, b: (
        in_order(p)
        .batch(b)
        .map(lambda r: tf.io.parse_example(r, TABLE), num_parallel_calls=AUTOTUNE)
        .prefetch(2)
    ),
    "table shuffled": lambda p, b: (
        in_order(p)
        .shuffle(400_000, seed=1)
        .batch(b)
        .map(lambda r: tf.io.parse_example(r, TABLE), num_parallel_calls=AUTOTUNE)
        .prefetch(2)
    ),
    "shuffled": lambda p, b: in_order(p).shuffle(60_000, seed=1).batch(b).prefetch(2),
    "png usual": lambda p, b: interleaved(p).map(one_png, num_parallel_calls=AUTOTUNE).batch(b).prefetch(2),
    "png best": lambda p, b: in_order(p).batch(b).map(many_pngs, num_parallel_calls=2).prefetch(2),
    "jpeg best": lambda p, b: in_order(p).map(one_jpeg, num_parallel_calls=AUTOTUNE).batch(b).prefetch(2),
}


def length(element):
    while isinstance(element, tuple | dict):
        element = next(iter(element.values())) if isinstance(element, dict) else element[0]
    return int(element.shape[0])


def drained(name):
    return lambda files, batch, most: take(DATASETS[name](files, batch), most, length)


def first(name):
    """Return a job that makes a dataset and takes its first batch."""

    def run(files, batch, most):
        next(iter(DATASETS[name](files, batch)))
        return 1

    return run


def resume(files, batch, most):
    """Restore an iterator from a checkpoint, which has the buffer of the shuffle in it."""
    before = iter(DATASETS["shuffled"](files, batch))
    for _ in range(sum(1 for _ in DATASETS["raw best"](files, batch)) // 2):
        next(before)
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(iterator=before).save(f"{folder}/state")
        yield
        after = iter(DATASETS["shuffled"](files, batch))
        tf.train.Checkpoint(iterator=after).restore(path)
        next(after)
        yield 1


def skip(files, batch, most):
    """Read records by number as tf.data allows: skip to each (of 50,000 in a shard)."""
    dataset = in_order(files[:1])
    return sum(1 for number in range(10) for _ in dataset.skip(number * 4_999 % 50_000).take(1))


def write(files, batch, most):
    """Serialise and write rows from columns."""
    rows = min(batch, most or batch)
    columns = {name: np.ravel(values) for name, values in table_rows(batch).items()}
    with tempfile.TemporaryDirectory() as folder, tf.io.TFRecordWriter(f"{folder}/x") as writer:
        yield
        for row in range(rows):
            feature = {}
            for name, values in columns.items():
                value = values[row : row + 1]
                if name in FLOATS:
                    feature[name] = tf.train.Feature(float_list=tf.train.FloatList(value=value))
                else:
                    feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
        yield rows


JOBS = {name: drained(name) for name in DATASETS}
JOBS |= {f"first {name}": first(name) for name in DATASETS}
JOBS |= {"resume": resume, "skip": skip, "write": write}

if __name__ == "__main__":
    serve(JOBS, "tensorflow-cpu")
