"""TensorFlow's side of the comparisons, which runs in an interpreter with TensorFlow."""

import os
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

from benchmarks.peer_loop import serve

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


def shuffled_table(paths, batch):
    dataset = in_order(paths).shuffle(400_000, seed=1).batch(batch)
    return dataset.map(lambda r: tf.io.parse_example(r, TABLE), num_parallel_calls=AUTOTUNE)


# Usual: as in the guides. Best: the fastest of several variants.
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
    "table shuffled": lambda p, b: shuffled_table(p, b).prefetch(2),
    "png usual": lambda p, b: interleaved(p).map(one_png, num_parallel_calls=AUTOTUNE).batch(b).prefetch(2),
    "png best": lambda p, b: in_order(p).batch(b).map(many_pngs, num_parallel_calls=2).prefetch(2),
    "jpeg best": lambda p, b: in_order(p).map(one_jpeg, num_parallel_calls=AUTOTUNE).batch(b).prefetch(2),
}


def dataset_job(name, paths, batch):
    records = 0
    for element in DATASETS[name](paths, batch):
        first = element
        while isinstance(first, (tuple, dict)):
            first = next(iter(first.values())) if isinstance(first, dict) else first[0]
        records += int(first.shape[0])
    return records


def first_batch(name, paths, batch):
    """Make a dataset and take its first batch."""
    next(iter(DATASETS[name](paths, batch)))
    return 1


def skip(paths, wanted):
    """Read records by number as tf.data allows: skip to each (of 50,000 in a shard)."""
    dataset = in_order(paths)
    return sum(1 for number in range(wanted) for _ in dataset.skip(number * 4_999 % 50_000).take(1))


def write_table(path, records):
    """Serialise and write rows from columns."""
    import numpy as np

    rng = np.random.default_rng(0)
    floats = rng.random((records, 13), np.float32)
    integers = rng.integers(0, 1 << 20, (records, 26))
    start = time.perf_counter()
    with tf.io.TFRecordWriter(path) as writer:
        for row in range(records):
            feature = {
                name: tf.train.Feature(float_list=tf.train.FloatList(value=floats[row, i : i + 1]))
                for i, name in enumerate(FLOATS)
            }
            for i, name in enumerate(INTEGERS):
                values = tf.train.Int64List(value=integers[row, i : i + 1])
                feature[name] = tf.train.Feature(int64_list=values)
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    return time.perf_counter() - start


def run(job, paths, argument):
    """Do one job."""
    if job == "write table":
        with tempfile.TemporaryDirectory() as folder:
            return write_table(os.path.join(folder, "x"), argument), argument
    if job.startswith("first "):
        return first_batch(job.removeprefix("first "), paths, argument)
    if job == "skip":
        return skip(paths[:1], argument)
    return dataset_job(job, paths, argument)


if __name__ == "__main__":
    serve({"tensorflow": tf.__version__}, run)
