"""WebP pixels compared with those of Pillow and TensorFlow, which both decode with libwebp."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage
from PIL import features

from shardkeep.errors import CorruptRecordError
from tests.compat.test_images import SIZES, by_pillow, decoded, photograph
from tests.tensorflow_child import TensorFlow

pytestmark = pytest.mark.skipif(not features.check("webp"), reason="this Pillow has no WebP")


def webp(
    seed: int,
    height: int,
    width: int,
    noise: float,
    *,
    alpha: int = 0,
    lossless: bool,
    quality: int,
    method: int,
) -> bytes:
    """A picture; `alpha` is the number of different values of alpha, 0 for none."""
    image = photograph(seed, height, width, noise)
    if alpha:
        values = np.random.default_rng(seed).integers(0, alpha, (height, width)) * 255 // max(alpha - 1, 1)
        image.putalpha(PillowImage.fromarray(values.astype(np.uint8)))
    out = io.BytesIO()
    image.save(
        out,
        "WEBP",
        lossless=lossless,
        quality=quality,
        method=method,
        exact=True,
        alpha_quality=60 + seed % 41,
    )
    return out.getvalue()


KINDS = {
    "noise": st.sampled_from([0, 3, 25]),
    "seed": st.integers(0, 1000),
    "alpha": st.sampled_from([0, 0, 2, 9, 256]),
    "lossless": st.booleans(),
    "quality": st.sampled_from([0, 30, 75, 100]),
    "method": st.integers(0, 5),
}


@settings(max_examples=150, deadline=None)
@given(height=SIZES, width=SIZES, **KINDS)
def test_every_pixel_equals_pillow(**options: int) -> None:
    image = webp(**options)  # type: ignore[arg-type]
    assert np.array_equal(decoded(image), by_pillow(image))


DECODE = """
import sys
import tensorflow as tf
for path in sys.argv[1:]:
    tf.io.write_file(path + ".pixels", tf.io.decode_webp(tf.io.read_file(path)).numpy().tobytes())
"""


@pytest.mark.tensorflow
def test_every_pixel_equals_tensorflow(tensorflow: TensorFlow, tmp_path: Path) -> None:
    paths = []
    for number in range(16):
        path = tmp_path / f"{number}"
        alpha, lossless, quality = [0, 5][number % 2], number % 4 > 1, [20, 75, 90, 100][number // 4]
        path.write_bytes(
            webp(
                number, 40 + number, 61 - number, 9, alpha=alpha, lossless=lossless, quality=quality, method=4
            )
        )
        paths.append(path)
    tensorflow.run(DECODE, *paths)
    for path in paths:
        wanted = np.frombuffer(Path(f"{path}.pixels").read_bytes(), np.uint8)
        assert np.array_equal(decoded(path.read_bytes()).ravel(), wanted), path


def test_an_animation_is_refused() -> None:
    frames = [photograph(seed, 20, 30, 5) for seed in range(3)]
    out = io.BytesIO()
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:], duration=50)
    with pytest.raises(CorruptRecordError, match="an animated WebP; only still ones are decoded"):
        decoded(out.getvalue())


def test_blank_pictures_are_read_however_few_bytes_they_have() -> None:
    for side, method in ((1024, 0), (4000, 4)):
        out = io.BytesIO()
        PillowImage.new("RGB", (side, side), (9, 200, 7)).save(out, "WEBP", lossless=True, method=method)
        assert decoded(out.getvalue()).shape == (side, side, 3)
