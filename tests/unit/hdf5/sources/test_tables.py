from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5 import WorkerFile, merge, receipts, verify
from shardkeep.hdf5.sources.tables import check_table
from shardkeep.jobs import audit
from shardkeep.world import World
from tests.unit.jobs.test_audit import receipt


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=2)) as out:
            out.append("loss", [0.5 + rank])
            unsealed = {key: value for key, value in receipt(rank).items() if key != "crc32c"}
            out.commit(step=1, receipt=unsealed | {"receipt_version": 2})
    merge(tmp_path / "run", tmp_path / "all.h5")
    assert verify(tmp_path / "all.h5").ok
    return tmp_path / "all.h5"


def flip(path: Path, what: bytes, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    assert content.count(what) == 1, content.count(what)
    content[content.index(what)] ^= bit
    path.write_bytes(content)


def rows_of(path: Path, name: str) -> bytes:
    with h5py.File(path) as file:
        return bytes(file[name][:].tobytes())


@pytest.mark.parametrize("name", ["_checks", "_provenance"])
def test_a_flipped_bit_of_a_table_is_found(name: str, merged: Path) -> None:
    whole, table = merged.read_bytes(), rows_of(merged, name)
    start = whole.index(table)
    for place in range(len(table)):
        content = bytearray(whole)
        content[start + place] ^= 1 << place % 8
        merged.write_bytes(content)
        with h5py.File(merged) as file, pytest.raises(CorruptDataError, match=name):
            check_table(file, name, str(merged))
    if name == "_checks":
        with pytest.raises(CorruptDataError, match=name):
            verify(merged)
    else:
        assert [name in one for one in verify(merged).findings] == [True]


def test_a_flipped_bit_of_the_text_of_an_attribute_is_found(merged: Path) -> None:
    with h5py.File(merged) as file:
        root = file["_provenance"].attrs["root"].encode()
    flip(merged, root)
    assert verify(merged).findings == ("the attributes of '_provenance': the file has other attributes",)


def test_a_flipped_bit_of_receipts_is_found(merged: Path, tmp_path: Path) -> None:
    flip(merged, b'"rank":1', bit=0x20)
    for refused in (
        lambda: receipts(merged),
        lambda: audit(merged),
        lambda: merge(merged, tmp_path / "again.h5"),
    ):
        with pytest.raises(CorruptDataError, match="_receipts") as caught:
            refused()
        assert caught.value.path == str(merged)
    assert ["_receipts" in one for one in verify(merged).findings] == [True]


def test_a_table_of_a_large_merge_has_its_checksum(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.h5" for number in range(120)]
    for path in paths:
        with h5py.File(path, "w") as file:
            file["x"] = [1.0]
    merge(paths, tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5", "r+") as file:
        assert file["_provenance"].chunks is not None
        check_table(file, "_provenance", "all.h5")
        file["_provenance"][119] = file["_provenance"][118]
        with pytest.raises(CorruptDataError, match=r"'_provenance' of 'all\.h5'"):
            check_table(file, "_provenance", "all.h5")
