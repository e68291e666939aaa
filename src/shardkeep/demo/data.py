"""Input of the demo: handwritten digits as PNG records in shards of unequal size."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep._extras import import_extra
from shardkeep.tfrecord import FixedLen, Image, ShardWriter
from shardkeep.tfrecord.example.features import Feature

__all__ = ["CLASSES", "FEATURES", "IMAGE_VALUES", "Packed", "pack", "shard_sizes", "to_png"]

CLASSES = 10
SIDE_PX = 32
CHANNELS = 3
IMAGE_VALUES = SIDE_PX * SIDE_PX * CHANNELS

# The features of the classic TensorFlow tutorial on images in TFRecord files.
FEATURES: dict[str, Feature] = {"image_raw": Image(CHANNELS, "float32"), "label": FixedLen((), "int64")}

TRAIN_PROPORTIONS = (4, 2, 6, 1, 8, 3, 7, 5)  # all different, as real shards are
HELD_OUT_PROPORTIONS = (2, 1)
_HELD_OUT_SHARE = 0.2


@dataclass(frozen=True)
class Packed:
    """The packed shards, and the labels that later checks compare with.

    Attributes
    ----------
    train, held_out : tuple of Path
        Paths of the shards, in order.
    labels : tuple of ndarray of int64
        Labels of each training shard, in the order of its records.
    held_out_records : int
    size_bytes : int
        Size of all shards together.
    """

    train: tuple[Path, ...]
    held_out: tuple[Path, ...]
    labels: tuple[npt.NDArray[np.int64], ...]
    held_out_records: int
    size_bytes: int

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of records of each training shard."""
        return tuple(len(labels) for labels in self.labels)

    @property
    def records(self) -> int:
        """Number of records of all training shards."""
        return sum(self.counts)


def pack(
    folder: Path,
    *,
    seed: int = 0,
    images: int | None = None,
    on_record: Callable[[int, int], None] | None = None,
) -> Packed:
    """Write the digits of scikit-learn (1,797 images of 8x8 pixels) as 32x32x3 PNG records.

    A fifth of them, chosen by `seed`, is the held-out part in 2 shards. The others go into 8 shards, of which
    the largest has about eight times as many records as the smallest.

    Parameters
    ----------
    folder : Path
        Existing folder for the shards.
    seed : int, optional
        Seed of the split.
    images : int, optional
        Number of images to use, from the first; all by default.
    on_record : callable, optional
        Called with (written, total) after every record.

    Raises
    ------
    MissingExtraError
        scikit-learn or Pillow is not installed.
    DurabilityError
        The shards could not be written; no partial shard is left under its name.
    """
    digits, labels = _load(images)
    order = np.random.default_rng([seed, 0]).permutation(len(digits))
    held_out_records = round(len(digits) * _HELD_OUT_SHARE)
    held_out, train = order[:held_out_records], order[held_out_records:]
    total = len(digits)
    written = 0

    def write(pattern: str, chosen: npt.NDArray[np.int64], sizes: tuple[int, ...]) -> tuple[Path, ...]:
        nonlocal written
        shard_of_record = np.repeat(np.arange(len(sizes)), sizes)
        with ShardWriter(str(folder / pattern), shards=len(sizes)) as out:
            for number, shard in zip(chosen, shard_of_record, strict=True):
                example = {"image_raw": to_png(digits[number]), "label": int(labels[number])}
                out.write_example(example, shard=int(shard))
                written += 1
                if on_record is not None:
                    on_record(written, total)
        return tuple(folder / pattern.format(shard=shard, shards=len(sizes)) for shard in range(len(sizes)))

    sizes = shard_sizes(len(train), TRAIN_PROPORTIONS)
    train_paths = write("train-{shard:05d}-of-{shards:05d}.tfrecord", train, sizes)
    held_out_paths = write(
        "heldout-{shard:05d}-of-{shards:05d}.tfrecord",
        held_out,
        shard_sizes(held_out_records, HELD_OUT_PROPORTIONS),
    )
    return Packed(
        train=train_paths,
        held_out=held_out_paths,
        labels=tuple(np.split(labels[train], np.cumsum(sizes)[:-1])),
        held_out_records=held_out_records,
        size_bytes=sum(path.stat().st_size for path in train_paths + held_out_paths),
    )


def shard_sizes(records: int, proportions: tuple[int, ...]) -> tuple[int, ...]:
    """Return one shard size for each proportion; the sizes add up to `records`.

    Examples
    --------
    >>> shard_sizes(1438, TRAIN_PROPORTIONS)
    (159, 80, 240, 40, 319, 120, 280, 200)
    """
    ends = records * np.cumsum(proportions) // sum(proportions)
    return tuple(int(size) for size in np.diff(ends, prepend=0))


def to_png(digit: npt.NDArray[Any]) -> bytes:
    """Encode an 8x8 digit with values 0 to 16 as a 32x32 RGB PNG file.

    Raises
    ------
    MissingExtraError
        Pillow is not installed.
    """
    pillow = import_extra("PIL.Image", "the demo")
    grey = np.rint(np.clip(digit, 0, 16) * (255 / 16)).astype(np.uint8)
    enlarged = pillow.fromarray(grey).resize((SIDE_PX, SIDE_PX), pillow.Resampling.BICUBIC).convert("RGB")
    buffer = io.BytesIO()
    enlarged.save(buffer, "PNG")
    return buffer.getvalue()


def _load(images: int | None) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    digits = import_extra("sklearn.datasets", "the demo").load_digits()
    return digits.images[:images], digits.target[:images].astype(np.int64)
