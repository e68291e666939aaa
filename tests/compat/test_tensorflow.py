"""Files of TensorFlow read by Shardkeep, and files of Shardkeep read by TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen, Image, Reader, VarLen, Writer, decode_example, encode_example
from shardkeep.world import World
from tests.tensorflow_child import TensorFlow

HERE = Path(__file__).parent


def check_files(folder: Path) -> None:
    facts = json.loads((folder / "facts.json").read_text())
    records = [bytes.fromhex(record) for record in facts["records"]]
    for name in ("plain", "gzip", "zlib"):
        reader = Reader(folder / f"{name}.tfrecord")
        assert list(reader) == records
        assert reader.compression == (None if name == "plain" else name)
    pixels = np.array(facts["pixels"], np.uint8).reshape(4, 6, 3)
    examples = list(Reader(folder / "examples.tfrecord"))
    for i, record in enumerate(examples):
        features = decode_example(record)
        assert features["label"].tolist() == [i - 1]
        assert features["words"] == [b"w%d" % j for j in range(i)]
        assert features["big"].tolist() == [2**62, -(2**63)]
        np.testing.assert_array_equal(features["box"], np.array([i / 3, -0.5], np.float32))
        # The same bytes as protobuf's own deterministic serialisation.
        assert encode_example(features) == record
    wanted: dict[str, Any] = {
        "label": FixedLen(),
        "box": FixedLen((2,), "float32"),
        "words": VarLen("bytes"),
        "image_raw": Image(3, "uint8"),
    }
    (batch,) = Loader(folder / "examples.tfrecord", wanted, 3, World())
    assert batch["label"].tolist() == [-1, 0, 1]
    assert [row.tolist() for row in batch["words"]] == [[], [b"w0"], [b"w0", b"w1"]]
    for image in batch["image_raw"]:
        np.testing.assert_array_equal(image, pixels)
    (batch,) = Loader(folder / "examples.tfrecord", {"image_raw": Image()}, 3, World())
    # To the last bit, as tf.image.convert_image_dtype scales.
    np.testing.assert_array_equal(batch["image_raw"][0].ravel(), np.array(facts["float_pixels"], np.float32))


def test_stored_files_of_tensorflow_are_read() -> None:
    check_files(HERE / "data")


@pytest.mark.tensorflow
def test_new_files_of_tensorflow_are_read(tensorflow: TensorFlow, tmp_path: Path) -> None:
    tensorflow.run((HERE / "make_tensorflow_files.py").read_text(), tmp_path)
    check_files(tmp_path)


READ = """
import json, sys
import tensorflow as tf
out = {}
for path, compression in zip(sys.argv[1::2], sys.argv[2::2]):
    out[path] = [r.numpy().hex() for r in tf.data.TFRecordDataset(path, compression)]
print(json.dumps(out))
"""

PARSE = """
import sys
import numpy as np
import tensorflow as tf
spec = {"x": tf.io.FixedLenFeature([], tf.int64), "f": tf.io.FixedLenFeature([3], tf.float32),
        "v": tf.io.VarLenFeature(tf.int64), "b": tf.io.FixedLenFeature([], tf.string)}
for i, record in enumerate(tf.data.TFRecordDataset(sys.argv[1])):
    got = tf.io.parse_single_example(record, spec)
    assert got["x"] == i - 5
    assert np.allclose(got["f"], [i, 0.5, -1])
    assert tf.sparse.to_dense(got["v"]).numpy().tolist() == list(range(i))
    assert got["b"].numpy() == b"b" * i
    message = tf.train.Example.FromString(record.numpy())
    assert message.SerializeToString(deterministic=True) == record.numpy()
print(i + 1)
"""


@pytest.mark.tensorflow
def test_tensorflow_reads_what_was_written_here(tensorflow: TensorFlow, tmp_path: Path) -> None:
    records = [b"", b"a", bytes(range(256)) * 4000]
    arguments: list[str] = []
    for compression in ("", "GZIP", "ZLIB"):
        path = tmp_path / f"x{compression}"
        # Appended to, so that the gzip file has two members; zlib files are not appended to.
        for part in (records,) if compression == "ZLIB" else (records[:2], records[2:]):
            with Writer(path, compression=compression, exists="append") as w:
                for record in part:
                    w.write(record)
        arguments += [str(path), compression]
    out = json.loads(tensorflow.run(READ, *arguments))
    for got in out.values():
        assert [bytes.fromhex(record) for record in got] == records


@pytest.mark.tensorflow
def test_tensorflow_parses_the_examples_written_here(tensorflow: TensorFlow, tmp_path: Path) -> None:
    path = tmp_path / "x"
    with Writer(path) as w:
        for i in range(20):
            v = np.arange(i, dtype=np.int64)
            w.write_example({"x": i - 5, "f": [i, 0.5, -1.0], "v": v, "b": b"b" * i})
    assert tensorflow.run(PARSE, path).strip() == "20"
