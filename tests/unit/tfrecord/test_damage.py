"""Damage is an error, left out, or repaired; every other record keeps its number."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from shardkeep.errors import CorruptDataError, CorruptRecordError, FormatError, PlanError, TruncatedFileError
from shardkeep.loader import Loader
from shardkeep.tfrecord.damage import (
    Damage,
    OnCorrupt,
    check_on_corrupt,
    is_foreign,
    is_repairable,
    read_records,
)
from tests.odd_files import FRAME_BYTES, GOOD, RECORDS, OddFile, odd_files

THREE = 3 * FRAME_BYTES
ODD = {one.name: one for one in odd_files()}


def flipped(offset_bytes: int, bit: int = 1) -> bytes:
    return GOOD[:offset_bytes] + bytes([GOOD[offset_bytes] ^ bit]) + GOOD[offset_bytes + 1 :]


def read(path: Path, on_corrupt: OnCorrupt) -> tuple[dict[int, bytes], list[Damage]]:
    damaged: list[Damage] = []
    return dict(read_records(path, on_corrupt=on_corrupt, on_damage=damaged.append)), damaged


@pytest.mark.parametrize("offset_bytes", [THREE, THREE + 9, THREE + 50, THREE + FRAME_BYTES - 1])
def test_one_bit(tmp_path: Path, offset_bytes: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(flipped(offset_bytes))
    with pytest.raises(CorruptRecordError) as caught:
        list(read_records(path))
    assert (caught.value.record, caught.value.offset_bytes) == (3, THREE)
    assert is_repairable(str(path), THREE)
    whole, damaged = read(path, "skip")
    assert whole == {number: record for number, record in enumerate(RECORDS) if number != 3}
    assert [(one.record, one.offset_bytes, one.bytes, one.repaired) for one in damaged] == [
        (3, THREE, FRAME_BYTES, False)
    ]
    whole, damaged = read(path, "repair")
    assert whole == dict(enumerate(RECORDS))
    assert [(one.record, one.repaired) for one in damaged] == [(3, True)]
    assert "flipped" in str(damaged[0])


def test_more_than_one_bit_is_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(GOOD[: THREE + 50] + b"other" + GOOD[THREE + 55 :])
    assert not is_repairable(str(path), THREE)
    with pytest.raises(CorruptRecordError, match=r'record 3 at byte 648: .* on_corrupt="skip" omits it'):
        read(path, "repair")
    assert list(read(path, "skip")[0]) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_hole_counts_as_one_record(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(GOOD[:432] + bytes(1024) + GOOD[1456:])
    whole, damaged = read(path, "skip")
    assert list(whole.values()) == [*RECORDS[:2], *RECORDS[7:]]
    assert list(whole) == [0, 1, 3, 4, 5]
    assert [(one.record, one.offset_bytes, one.bytes) for one in damaged] == [(2, 432, 1080)]
    with pytest.raises(CorruptRecordError, match="1080 bytes without a recognisable record"):
        read(path, "repair")
    assert not is_repairable(str(path), 432)


def test_the_end_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(GOOD[:-100])
    with pytest.raises(TruncatedFileError):
        read(path, "raise")
    whole, damaged = read(path, "skip")
    assert (list(whole.values()), [one.record for one in damaged]) == (RECORDS[:9], [9])


@pytest.mark.parametrize("name", sorted(name for name, one in ODD.items() if one.error))
def test_every_odd_file(tmp_path: Path, name: str) -> None:
    one: OddFile = ODD[name]
    path = tmp_path / name
    path.write_bytes(one.data)
    try:
        whole, damaged = read(path, "skip")
    except (CorruptDataError, FormatError) as error:
        # Nothing is whole, or the file is of another kind.
        assert not one.delivered, error
        return
    assert list(whole.values())[: one.whole] == one.delivered
    assert damaged
    assert not any(one.record in whole for one in damaged)


def test_numbers_are_those_of_the_loader(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(GOOD[:432] + bytes(1024) + flipped(8 * FRAME_BYTES + 50)[1456:])
    loader = Loader(path, batch_size=1, on_corrupt="skip", with_ids=True)
    ids = [int(batch["index"][0]) for batch in loader if batch["valid"][0]]
    assert list(read(path, "skip")[0]) == ids


def test_compressed_file_ends_at_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    packed = gzip.compress(GOOD, 0)
    path.write_bytes(packed[: len(packed) // 2])
    whole, damaged = read(path, "skip")
    assert list(whole.values()) == RECORDS[:4]
    assert [(one.record, one.offset_bytes, one.bytes) for one in damaged] == [(4, None, None)]
    with pytest.raises(TruncatedFileError, match="is not for compressed files"):
        read(path, "repair")


def test_undamaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(GOOD)
    for mode in ("raise", "skip", "repair"):
        assert read(path, mode) == (dict(enumerate(RECORDS)), [])  # type: ignore[arg-type]


def test_warning_by_default(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(flipped(THREE + 50))
    with pytest.warns(RuntimeWarning, match="record 3 at byte 648 was skipped: the checksum of"):
        assert len(list(read_records(path, on_corrupt="skip"))) == 9


def test_nothing_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(GOOD * 500 + flipped(THREE + 50))
    assert path.stat().st_size >= 1 << 20
    assert len(read(path, "skip")[0]) == 5009
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_wrong_mode() -> None:
    with pytest.raises(PlanError, match='on_corrupt must be "raise", "skip" or "repair", not \'ignore\''):
        check_on_corrupt("ignore")


def test_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for data, foreign in (
        (b"\x93\x01\xff\xee" * 1000, True),
        (struct.pack("<QI", 200, 7) + GOOD[12:], False),
        (b"\x93\x01\xff\xee" * 1000 + GOOD, False),
        (flipped(3)[:FRAME_BYTES], False),
        (flipped(3, 3)[:FRAME_BYTES], True),
        (b"\x00" * 5000, False),
        (GOOD, False),
        (b"", False),
    ):
        path.write_bytes(data)
        assert is_foreign(str(path)) == foreign
