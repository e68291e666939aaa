from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkeep.demo.data import TRAIN_PROPORTIONS, pack, shard_sizes, to_png
from shardkeep.errors import MissingExtraError
from shardkeep.tfrecord import Reader, decode_example

needs_digits = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="needs scikit-learn, which has no wheel for musl"
)


def test_png_is_32x32_rgb() -> None:
    from PIL import Image

    digit = np.zeros((8, 8))
    digit[2:6, 2:6] = 16
    image = Image.open(io.BytesIO(to_png(digit)))
    assert (image.format, image.mode, image.size) == ("PNG", "RGB", (32, 32))
    pixels = np.asarray(image)
    assert pixels[16, 16].tolist() == [255, 255, 255]
    assert pixels[0, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("records", [0, 1, 7, 64, 1438, 10**6])
def test_shard_sizes_add_up_to_the_number_of_records(records: int) -> None:
    sizes = shard_sizes(records, TRAIN_PROPORTIONS)
    assert sum(sizes) == records
    assert len(sizes) == 8
    assert records < 64 or len(set(sizes)) == 8, "unequal"


@needs_digits
def test_every_image_is_in_one_shard(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    packed = pack(tmp_path, images=200, on_record=lambda done, total: calls.append((done, total)))
    assert packed.records == 160
    assert packed.held_out_records == 40
    assert calls[-1] == (200, 200)
    assert len(calls) == 200

    found: dict[str, list[list[dict[str, Any]]]] = {"train": [], "held_out": []}
    for part, paths in (("train", packed.train), ("held_out", packed.held_out)):
        for path in paths:
            found[part].append([decode_example(record) for record in Reader(path)])
    assert tuple(len(shard) for shard in found["train"]) == packed.counts
    for labels, shard in zip(packed.labels, found["train"], strict=True):
        assert [int(example["label"][0]) for example in shard] == labels.tolist()
    images = [
        bytes(example["image_raw"][0]) for part in found.values() for shard in part for example in shard
    ]
    assert len(images) == 200
    # A few of the digits are equal in every pixel.
    assert len(set(images)) > 190
    assert packed.size_bytes == sum(file.stat().st_size for file in packed.train + packed.held_out)


@needs_digits
def test_seed_decides_the_split(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    one, same, other = (
        pack(folder, images=100, seed=seed) for folder, seed in zip(folders, (1, 1, 2), strict=True)
    )
    assert [file.read_bytes() for file in one.train] == [file.read_bytes() for file in same.train]
    assert [file.read_bytes() for file in one.train] != [file.read_bytes() for file in other.train]


@needs_digits
@pytest.mark.parametrize(("module", "package"), [("sklearn", "scikit-learn"), ("PIL", "pillow")])
def test_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=package) as caught:
        pack(tmp_path, images=100)
    assert "pip install 'shardkeep[demo]'" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
