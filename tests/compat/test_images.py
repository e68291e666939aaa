"""JPEG pixels compared with those of Pillow and TensorFlow, which both decode with libjpeg-turbo."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from shardkeep.tfrecord import Image, Writer, read_columns
from tests.jpeg_files import sequential_jpeg
from tests.tensorflow_child import TensorFlow

SIZES = st.one_of(st.integers(1, 70), st.sampled_from([8, 16, 32, 64, 150]))


def decoded(image: bytes, channels: int = 0) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.tfrecord"
        with Writer(path) as writer:
            writer.write_example({"x": image})
        pixels = read_columns(path, {"x": Image(channels, "uint8")})["x"][0]
    return np.asarray(pixels)


def by_pillow(image: bytes) -> np.ndarray:
    pixels = np.asarray(PillowImage.open(io.BytesIO(image)))
    return pixels if pixels.ndim == 3 else pixels[..., None]


def photograph(seed: int, height: int, width: int, noise: float) -> PillowImage.Image:
    """Waves, edges and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    pixels = np.full((height, width, 3), 128.0)
    for channel in range(3):
        for _ in range(4):
            across, down, phase, size = (
                rng.normal(0, 0.1),
                rng.normal(0, 0.1),
                rng.uniform(0, 6),
                rng.uniform(5, 40),
            )
            pixels[..., channel] += size * np.sin(across * x + down * y + phase)
    for _ in range(6):
        centre_y, centre_x, radius = rng.integers(height), rng.integers(width), rng.integers(1, 20)
        pixels[(y - centre_y) ** 2 + (x - centre_x) ** 2 < radius**2] = rng.integers(0, 256, 3)
    pixels += rng.normal(0, noise, pixels.shape)
    return PillowImage.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


@settings(max_examples=60, deadline=None)
@given(
    height=SIZES,
    width=SIZES,
    noise=st.sampled_from([0, 3, 25]),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(["4:4:4", "4:2:2", "4:2:0", "L", "RGB"]),
    quality=st.sampled_from([5, 30, 75, 90, 97, 100]),
    optimize=st.booleans(),
    restart=st.sampled_from([{}, {"restart_marker_blocks": 3}, {"restart_marker_rows": 1}]),
)
def test_photographs_equal_pillow(
    height: int,
    width: int,
    noise: float,
    seed: int,
    kind: str,
    quality: int,
    optimize: bool,
    restart: dict[str, int],
) -> None:
    image, options = photograph(seed, height, width, noise), dict[str, Any](restart)
    if kind == "L":
        image = image.convert("L")
    elif kind == "RGB":
        options["keep_rgb"] = True
    else:
        options["subsampling"] = kind
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality, optimize=optimize, **options)
    assert np.array_equal(decoded(out.getvalue()), by_pillow(out.getvalue()))


@settings(max_examples=50, deadline=None)
@given(
    height=SIZES,
    width=SIZES,
    seed=st.integers(0, 1000),
    sampling=st.sampled_from(
        [
            [(1, 1)],
            [(2, 2)],
            [(1, 1), (1, 1), (1, 1)],
            [(2, 1), (2, 1), (2, 1)],
            [(1, 2), (1, 2), (1, 2)],
            [(2, 1), (1, 1), (1, 1)],
            [(1, 2), (1, 1), (1, 1)],
            [(2, 2), (1, 1), (1, 1)],
            [(4, 1), (1, 1), (1, 1)],
            [(1, 4), (1, 1), (1, 1)],
            [(4, 2), (1, 1), (1, 1)],
            [(2, 4), (1, 1), (1, 1)],
            [(2, 2), (2, 1), (2, 1)],
            [(2, 2), (1, 2), (2, 1)],
            [(1, 1), (2, 2), (2, 2)],
            [(2, 1), (1, 2), (1, 2)],
        ]
    ),
    restart_interval=st.sampled_from([0, 1, 5]),
)
def test_every_sampling_equals_pillow(
    height: int, width: int, seed: int, sampling: list[tuple[int, int]], restart_interval: int
) -> None:
    rng = np.random.default_rng(seed)
    image = sequential_jpeg(rng, width, height, sampling, restart_interval=restart_interval)
    assert np.array_equal(decoded(image), by_pillow(image))


DECODE = """
import sys, tensorflow as tf
for path in sys.argv[1:]:
    for method in ("INTEGER_ACCURATE", ""):
        for channels in (0, 1, 3):
            pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels, dct_method=method)
            tf.io.write_file(f"{path}.{method or 'default'}.{channels}", pixels.numpy().tobytes())
"""


@pytest.mark.tensorflow
def test_sequential_jpegs_equal_tensorflow(tensorflow: TensorFlow, tmp_path: Path) -> None:
    paths = []
    kinds = ["4:4:4", "4:2:2", "4:2:0", "L"]
    for number in range(24):
        image = photograph(number, 90 + number, 121 - number, [0, 3, 17][number % 3])
        kind, quality = kinds[number % 4], [30, 75, 90][number // 8]
        options = {} if kind == "L" else {"subsampling": kind}
        path = tmp_path / f"{number}"
        (image.convert("L") if kind == "L" else image).save(path, "JPEG", quality=quality, **options)
        paths.append(path)
    tensorflow.run(DECODE, *paths)
    largest, means = 0, []
    for path in paths:
        for channels in (0, 1, 3):
            found = decoded(path.read_bytes(), channels).ravel()
            wanted = np.frombuffer(Path(f"{path}.INTEGER_ACCURATE.{channels}").read_bytes(), np.uint8)
            assert np.array_equal(found, wanted), (path, channels)
            # What TensorFlow takes where none is asked for (INTEGER_FAST) computes in fewer bits.
            rough = np.frombuffer(Path(f"{path}.default.{channels}").read_bytes(), np.uint8)
            difference = np.abs(found.astype(int) - rough)
            largest = max(largest, int(difference.max()))
            means.append(difference.mean())
    assert largest <= 10
    assert max(means) < 2
