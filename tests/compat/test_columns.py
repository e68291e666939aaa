"""Columns and sequence examples compared with the parsers of TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shardkeep.tfrecord import (
    FixedLen,
    Ragged,
    Reader,
    VarLen,
    Writer,
    decode_example,
    decode_sequence_example,
    encode_sequence_example,
    infer_schema,
    read_arrow,
    read_columns,
)
from tests.tensorflow_child import TensorFlow

FEATURES = {
    "scalar": FixedLen(),
    "matrix": FixedLen((2, 3), "float32"),
    "one": FixedLen((1,), "int64"),
    "word": FixedLen((), "bytes"),
    "words": FixedLen((2,), "bytes"),
    "int_default": FixedLen((2,), "int64", -7),
    "float_default": FixedLen((), "float32", 0.25),
    "bytes_default": FixedLen((), "bytes", b"none"),
    "ints": VarLen("int64"),
    "floats": VarLen("float32"),
    "strings": VarLen("bytes"),
}

# Fixed features come back as hex of their bytes, ragged ones as row lengths and values.
PARSE = """
import json, sys
import tensorflow as tf
F, I, S = tf.float32, tf.int64, tf.string
spec = {
    "scalar": tf.io.FixedLenFeature([], I),
    "matrix": tf.io.FixedLenFeature([2, 3], F),
    "one": tf.io.FixedLenFeature([1], I),
    "word": tf.io.FixedLenFeature([], S),
    "words": tf.io.FixedLenFeature([2], S),
    "int_default": tf.io.FixedLenFeature([2], I, [-7, -7]),
    "float_default": tf.io.FixedLenFeature([], F, 0.25),
    "bytes_default": tf.io.FixedLenFeature([], S, b"none"),
    "ints": tf.io.RaggedFeature(I, row_splits_dtype=I),
    "floats": tf.io.RaggedFeature(F, row_splits_dtype=I),
    "strings": tf.io.RaggedFeature(S, row_splits_dtype=I),
}

def plain(tensor):
    array = tensor.numpy()
    if array.dtype == object:
        return [list(array.shape), [one.hex() for one in array.ravel().tolist()]]
    return [list(array.shape), array.tobytes().hex()]

(records,) = tf.data.TFRecordDataset(sys.argv[1:]).batch(100_000)
out = {}
for name, one in tf.io.parse_example(records, spec).items():
    ragged = isinstance(one, tf.RaggedTensor)
    out[name] = [plain(one.values), plain(one.row_splits)] if ragged else plain(one)
print(json.dumps(out))
"""


def plain(array: np.ndarray) -> list[object]:
    if array.dtype == object:
        return [list(array.shape), [one.hex() for one in array.ravel().tolist()]]
    return [list(array.shape), array.tobytes().hex()]


@pytest.mark.tensorflow
def test_columns_are_those_of_parse_example(tensorflow: TensorFlow, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    paths = [tmp_path / f"{number}" for number in range(3)]
    for path in paths:
        with Writer(path) as writer:
            for i in range(200):
                row = {
                    "scalar": int(rng.integers(-(2**63), 2**63 - 1)),
                    "matrix": rng.normal(size=(2, 3)),
                    "one": [i],
                    "word": rng.bytes(int(rng.integers(0, 9))),
                    "words": [b"a%d" % i, b""],
                    "int_default": rng.integers(0, 9, 2),
                    "float_default": 1.5,
                    "bytes_default": b"x",
                    "ints": rng.integers(-9, 9, int(rng.integers(0, 5))),
                    "floats": rng.normal(size=int(rng.integers(0, 5))).astype(np.float32),
                    "strings": [rng.bytes(3) for _ in range(int(rng.integers(1, 4)))],
                }
                # What has a default, or is ragged, is left out now and then.
                for name in list(row)[5:]:
                    if rng.random() < 0.3:
                        del row[name]
                writer.write_example(row)
    wanted = json.loads(tensorflow.run(PARSE, *paths))
    found = read_columns(paths, FEATURES)
    got = {
        name: [plain(one.values), plain(one.offsets)] if isinstance(one, Ragged) else plain(one)
        for name, one in found.items()
    }
    assert got == {name: wanted[name] for name in FEATURES}


SEQUENCES = """
import sys
import tensorflow as tf
I, F, B = tf.train.Int64List, tf.train.FloatList, tf.train.BytesList
def feature(value):
    if value is None:
        return tf.train.Feature()
    if value and isinstance(value[0], bytes):
        return tf.train.Feature(bytes_list=B(value=value))
    if value and isinstance(value[0], float):
        return tf.train.Feature(float_list=F(value=value))
    return tf.train.Feature(int64_list=I(value=value))

def sequence(context, lists):
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={k: feature(v) for k, v in context.items()}),
        feature_lists=tf.train.FeatureLists(feature_list={
            k: tf.train.FeatureList(feature=[feature(v) for v in steps]) for k, steps in lists.items()
        }),
    )

for context, lists in eval(sys.argv[1]):
    message = sequence(context, lists)
    data = message.SerializeToString(deterministic=True)
    assert tf.train.SequenceExample.FromString(data) == message
    print(data.hex())
"""

CASES: list[tuple[dict[str, list[object]], dict[str, list[object]]]] = [
    ({}, {}),
    ({"id": [7], "name": [b"a", b""], "w": [0.5, -1.0]}, {}),
    ({}, {"none": [], "t": [[1], [2, 3], [-(2**63)]]}),
    ({"label": [1], "label_name": [b"x"]}, {"f": [[0.5], [1.5, 2.5]], "f_more": [[b"a"], [b"b", b"cc"]]}),
    ({"a": [3]}, {"empty steps": [[], [5], []], "unset steps": [None, [1], None], "only unset": [None]}),
    ({"é": [1], "z" * 200: [2]}, {"long": [[i] for i in range(300)]}),
]


@pytest.mark.tensorflow
def test_sequence_examples_are_those_of_protobuf(tensorflow: TensorFlow) -> None:
    wanted = tensorflow.run(SEQUENCES, repr(CASES)).split()
    for (context, lists), data in zip(CASES, wanted, strict=True):
        record = encode_sequence_example(context, lists)
        assert record.hex() == data
        assert encode_sequence_example(*decode_sequence_example(bytes.fromhex(data))) == record


def test_schema_is_inferred_from_files_of_tensorflow() -> None:
    path = Path(__file__).parent / "data/examples.tfrecord"
    schema = infer_schema(path)
    assert schema.source().splitlines()[1:] == [
        "from shardkeep import FixedLen, Image, VarLen",
        "",
        "features = {",
        '    "big": FixedLen((2,), "int64"),',
        '    "box": FixedLen((2,), "float32"),',
        '    "image_raw": Image(3, "uint8"),  # images of 4x6',
        '    "label": FixedLen((), "int64"),',
        '    "words": VarLen("bytes"),  # 0 to 2 values',
        "}",
    ]
    found = read_columns(path, schema)
    assert isinstance(found["words"], Ragged)
    assert [row.tolist() for row in found["words"]] == [[], [b"w0"], [b"w0", b"w1"]]
    pytest.importorskip("pyarrow")
    names = ("big", "box", "label", "words")
    for row, record in zip(
        read_arrow(path, {name: schema[name] for name in names}).to_pylist(), Reader(path), strict=True
    ):
        example = decode_example(record)
        assert row == {
            "big": example["big"].tolist(),
            "box": example["box"].tolist(),
            "label": example["label"][0],
            "words": example["words"],
        }
