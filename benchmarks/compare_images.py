"""Comparison of decoding images into batches."""

from __future__ import annotations

from benchmarks.comparison import Comparison
from benchmarks.jobs import loaded
from shardkeep.tfrecord import FixedLen, Image

_PNG = loaded(features={"image_raw": Image(), "label": FixedLen()}, batch_size=256)
_JPEG = loaded(features={"image_raw": Image(dtype="uint8"), "label": FixedLen()}, batch_size=64)

COMPARISONS = [
    Comparison("PNG to float32, beside the usual", "small", _PNG, "png usual", 10, 256),
    Comparison("PNG to float32, beside tf.data's best", "small", _PNG, "png best", 4, 256),
    Comparison("JPEG to uint8, beside tf.data's best", "large", _JPEG, "jpeg best", 1.2, 64),
]
