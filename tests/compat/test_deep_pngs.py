"""PNGs of 16 bits compared with TensorFlow: floats with all bits, bytes with the high ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardkeep.tfrecord import Image, Writer, read_columns
from tests.png_files import deep_png
from tests.tensorflow_child import TensorFlow

DECODE = """
import sys
import numpy as np
import tensorflow as tf
for path in sys.argv[1:]:
    png = tf.io.read_file(path)
    for channels in (0, 1, 3, 4):
        deep = tf.image.convert_image_dtype(tf.io.decode_png(png, channels, dtype=tf.uint16), tf.float32)
        np.savez(f"{path}.{channels}.npz", float32=deep, uint8=tf.io.decode_png(png, channels),
                 small=tf.image.resize(deep, (5, 9)), large=tf.image.resize(deep, (31, 40)))
"""


def pictures() -> dict[str, bytes]:
    """Every colour type, with and without tRNS and Adam7, in noise and in greys that are nearly equal."""
    rng = np.random.default_rng(0)
    made = {}
    for channels in (1, 2, 3, 4):
        for interlaced in (False, True):
            noise = rng.integers(0, 1 << 16, (23, 19, channels), np.uint16)
            close = (rng.integers(0, 65_000, (23, 19, 1)) + rng.integers(0, 4, (23, 19, channels))).astype(
                np.uint16
            )
            for name, samples in (("noise", noise), ("close", close)):
                for transparent in (None, samples[3, 4]) if channels in (1, 3) else (None,):
                    key = f"{channels}_{name}_{interlaced}_{transparent is not None}"
                    made[key] = deep_png(samples, interlaced=interlaced, transparent=transparent)
    made["one_pixel"] = deep_png(np.full((1, 1, 3), 258, np.uint16), interlaced=True)
    return made


@pytest.mark.tensorflow
def test_every_kind_of_deep_png_equals_tensorflow(tensorflow: TensorFlow, tmp_path: Path) -> None:
    paths = []
    for name, png in pictures().items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(png)
        with Writer(tmp_path / f"{name}.tfrecord") as writer:
            writer.write_example({"x": png})
    tensorflow.run(DECODE, *paths)
    for path in paths:
        for channels in (0, 1, 3, 4):
            wanted, what = np.load(f"{path}.{channels}.npz"), (path.name, channels)

            def found(dtype: str, size: tuple[int, int] | None = None) -> np.ndarray:
                feature = Image(channels, dtype, size)  # type: ignore[arg-type]  # noqa: B023
                return np.asarray(read_columns(f"{path}.tfrecord", {"x": feature})["x"][0])  # noqa: B023

            assert np.array_equal(found("float32"), wanted["float32"]), what
            assert np.array_equal(found("uint8"), wanted["uint8"]), what
            for name, size in (("small", (5, 9)), ("large", (31, 40))):
                assert np.abs(found("float32", size) - wanted[name]).max() <= 1e-6, (
                    path.name,
                    channels,
                    name,
                )
