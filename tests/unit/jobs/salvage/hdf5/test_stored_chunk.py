"""Checks of stored chunks."""

from __future__ import annotations

import zlib
from typing import Any

import h5py
import numpy as np
import pytest

from shardkeep._core import fletcher32
from shardkeep.jobs.salvage.hdf5.stored_chunk import DamagedChunkError, Filters

_ITEMS = 100


def _stored(rows: Any, **options: Any) -> tuple[bytes, h5py.h5p.PropDCID]:
    with h5py.File("f", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("x", data=rows, chunks=rows.shape, **options)
        return dataset.id.read_direct_chunk((0,))[1], dataset.id.get_create_plist()


def _filters(properties: h5py.h5p.PropDCID) -> Filters:
    return Filters(properties, h5py.h5t.NATIVE_INT64)


_RANDOM = np.random.default_rng(1).integers(1, 1 << 60, _ITEMS)


@pytest.mark.parametrize(
    "options",
    [
        {"fletcher32": True},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
    ],
    ids=str,
)
def test_checksum_proves_a_chunk_and_finds_each_flipped_byte(options: dict[str, Any]) -> None:
    stored, properties = _stored(_RANDOM, **options)
    filters = _filters(properties)
    assert filters.check(stored, 0)
    for at in range(2, len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 64
        with pytest.raises(DamagedChunkError):
            filters.check(bytes(damaged), 0)


def test_flipped_byte_in_a_gzip_chunk_is_found_or_has_no_effect() -> None:
    stored, properties = _stored(_RANDOM, compression="gzip")
    filters = _filters(properties)
    found = 0
    for at in range(2, len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 64
        try:
            assert filters.check(bytes(damaged), 0)
        except DamagedChunkError:
            found += 1
        else:
            assert zlib.decompress(damaged) == zlib.decompress(stored)
    assert found > 0.98 * len(stored)


def test_chunk_without_checksum_is_not_proved() -> None:
    stored, properties = _stored(_RANDOM)
    assert not _filters(properties).check(stored, 0)
    with pytest.raises(DamagedChunkError, match="it has 799 bytes, not 800"):
        _filters(properties).check(stored[:-1], 0)
    stored, properties = _stored(np.arange(_ITEMS), compression="lzf")
    assert not _filters(properties).check(stored, 0)
    with pytest.raises(DamagedChunkError, match="its filters cannot decode it"):
        _filters(properties).check(b"\xff" + stored, 0)


def test_skipped_filter_proves_nothing() -> None:
    stored, properties = _stored(_RANDOM, compression="gzip")
    assert not _filters(properties).check(zlib.decompress(stored), 1)
    with pytest.raises(DamagedChunkError, match="its filter mask is not valid"):
        _filters(properties).check(stored, 2)


@pytest.mark.parametrize("items", [_ITEMS - 1, _ITEMS + 1, 10_000_000])
def test_chunk_of_another_size_is_damaged(items: int) -> None:
    _, properties = _stored(_RANDOM, compression="gzip")
    with pytest.raises(DamagedChunkError):
        _filters(properties).check(zlib.compress(bytes(8 * items)), 0)


def test_fletcher32_does_not_prove_words_of_zeros_or_ones() -> None:
    rows = _RANDOM.copy()
    rows[10:20] = -1
    stored, properties = _stored(rows, fletcher32=True)
    filters = _filters(properties)
    assert not filters.check(stored, 0)
    zeroed = stored[:80] + bytes(80) + stored[160:]
    assert not filters.check(zeroed, 0)


@pytest.mark.parametrize("count", [1, 2, 3, 800, 801, 300_001])
def test_sums_are_those_of_hdf5(count: int) -> None:
    rows = np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)
    stored, _ = _stored(rows, fletcher32=True)
    one, two = fletcher32(stored[:-4])
    number = int.from_bytes(stored[-4:], "little")
    assert (one, two) == ((number & 0xFFFF) % 0xFFFF, (number >> 16) % 0xFFFF)
