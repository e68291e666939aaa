"""Write the files of tests/compat/data with TensorFlow, and their expected contents.

    python make_tensorflow_files.py OUT_DIR

Run it with an interpreter that has TensorFlow. The files in the repository were made by 2.21.0.
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
records = [b"", b"a", bytes(range(256)) * 5, b"last"]
for name, options in [("plain", ""), ("gzip", "GZIP"), ("zlib", "ZLIB")]:
    with tf.io.TFRecordWriter(str(out / f"{name}.tfrecord"), options) as w:
        for record in records:
            w.write(record)

pixels = (np.arange(4 * 6 * 3) * 3 % 256).astype(np.uint8).reshape(4, 6, 3)
png = tf.io.encode_png(pixels).numpy()


def example(i: int) -> bytes:
    features = {
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i - 1])),
        "box": tf.train.Feature(float_list=tf.train.FloatList(value=[i / 3, -0.5])),
        "words": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"w%d" % j for j in range(i)])),
        "image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[png])),
        "big": tf.train.Feature(int64_list=tf.train.Int64List(value=[2**62, -(2**63)])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(
        deterministic=True
    )


with tf.io.TFRecordWriter(str(out / "examples.tfrecord")) as w:
    for i in range(3):
        w.write(example(i))
facts = {
    "tensorflow": tf.__version__,
    "records": [record.hex() for record in records],
    "pixels": pixels.ravel().tolist(),
    "float_pixels": tf.image.convert_image_dtype(tf.io.decode_png(png), tf.float32).numpy().ravel().tolist(),
}
(out / "facts.json").write_text(json.dumps(facts))
