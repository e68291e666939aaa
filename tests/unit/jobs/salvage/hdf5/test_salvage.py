"""Repairs of whole HDF5 files.

Covers `shardkeep.jobs.salvage.hdf5.attributes`, `shardkeep.jobs.salvage.hdf5.child`,
`shardkeep.jobs.salvage.hdf5.findings`, `shardkeep.jobs.salvage.hdf5.header`,
`shardkeep.jobs.salvage.hdf5.patched_file`, `shardkeep.jobs.salvage.hdf5.process`,
`shardkeep.jobs.salvage.hdf5.rows`, `shardkeep.jobs.salvage.hdf5.target` and
`shardkeep.jobs.salvage.hdf5.walk`.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep._core import lookup3
from shardkeep.errors import FormatError
from shardkeep.files import writeback
from shardkeep.jobs.salvage.hdf5.salvage import salvage_hdf5
from shardkeep.jobs.salvage.report import RepairedFile
from tests.hdf5_makers import make


def _ignore(count: int) -> None:
    del count


def salvage(path: Path, output: Path | None = None) -> RepairedFile:
    """Repair a file, and check that it stays as it is."""
    before = path.read_bytes()
    found = salvage_hdf5(str(path), None if output is None else str(output), tick=_ignore)
    assert path.read_bytes() == before
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with chunks that have checksums, and metadata with checksums."""
    path = tmp_path / "good.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset(
            "packed", data=np.arange(8000).reshape(1000, 8), chunks=(100, 8), compression="gzip"
        )
        file.create_dataset("plain", data=np.arange(500.0))
        file.attrs["unit"] = 3
    return path


def _with_flags(good: bytes, flags: int) -> bytes:
    block = bytearray(good[:44])
    block[11] = flags
    return bytes(block) + lookup3(bytes(block)).to_bytes(4, "little") + good[48:]


def _outcomes(found: RepairedFile) -> list[tuple[str, Any, int]]:
    return [(part.outcome, part.dataset, part.items) for part in found.parts]


def test_the_disk_writes_the_new_file_during_the_work(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(path) as file:
        damaged = file["packed"].id.get_chunk_info(3).byte_offset
    content = bytearray(path.read_bytes())
    content[damaged + 5] ^= 1
    path.write_bytes(content)
    started: list[Any] = []
    monkeypatch.setattr(writeback, "_STEP_BYTES", 1000)
    monkeypatch.setattr(writeback, "_sync_file_range", lambda: lambda *arguments: started.append(arguments))
    assert salvage(path, tmp_path / "out.h5").items("lost") == 100
    assert started


def test_flags_are_cleared_in_a_copy(path: Path, tmp_path: Path) -> None:
    good = path.read_bytes()
    path.write_bytes(_with_flags(good, 5))
    output = tmp_path / "out.h5"
    found = salvage(path, output)
    assert output.read_bytes() == good
    assert found.ok and found.output == str(output)
    assert _outcomes(found) == [
        ("repaired", None, 0),
        ("kept", "/packed", 1000),
        ("unchecked", "/plain", 500),
    ]
    assert sk.verify(output).ok


def test_dry_run_reports_the_same_and_writes_nothing(path: Path, tmp_path: Path) -> None:
    good = path.read_bytes()
    for damaged in (_with_flags(good, 1), _with_chunk_damage(good)):
        path.write_bytes(damaged)
        dry = salvage(path)
        assert sorted(one.name for one in tmp_path.iterdir()) == ["good.h5"]
        output = tmp_path / "out.h5"
        found = salvage(path, output)
        assert found.parts == dry.parts
        assert dry.output is None
        output.unlink()


def _with_chunk_damage(good: bytes) -> bytes:
    with h5py.File(io.BytesIO(good), "r") as file:
        info = file["packed"].id.get_chunk_info(3)
    damaged = bytearray(good)
    damaged[info.byte_offset + 20] ^= 16
    return bytes(damaged)


def test_damaged_chunk_is_lost_and_all_others_are_kept(path: Path, tmp_path: Path) -> None:
    path.write_bytes(_with_chunk_damage(path.read_bytes()))
    output = tmp_path / "out.h5"
    found = salvage(path, output)
    lost = [part for part in found.parts if part.outcome == "lost"]
    assert [(one.dataset, one.chunk, one.items) for one in lost] == [("/packed", (300, 0), 100)]
    assert lost[0].offset_bytes is not None and lost[0].bytes is not None
    assert found.items("kept") == 900 and found.items("unchecked") == 500
    with h5py.File(output) as file:
        rows = file["packed"][:]
        expected = np.arange(8000).reshape(1000, 8)
        expected[300:400] = 0
        assert (rows == expected).all()
        assert '"start": [300, 0]' in file["packed"].attrs["shardkeep_repair"]
        assert json.loads(file.attrs["shardkeep_repair"])[0]["object"] == "/packed"
        assert (file["plain"][:] == np.arange(500.0)).all()
        assert file.attrs["unit"] == 3
        assert file["packed"].compression == "gzip"


@pytest.mark.parametrize("kind", ["segment", "merged"])
def test_rows_without_the_hash_of_their_commit_are_lost(kind: str, tmp_path: Path) -> None:
    path = make(kind, tmp_path / "files")
    good = path.read_bytes()
    at = good.index(np.arange(300).tobytes()[800:])
    path.write_bytes(good[:at] + b"\x7f" + good[at + 1 :])
    output = tmp_path / "out.h5"
    found = salvage(path, output)
    assert not found.ok
    assert any("g/inner" in part.reason for part in found.parts if part.outcome == "lost")
    assert not sk.verify(output).ok


def test_file_without_a_trace_of_hdf5_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"text " * 1000)
    with pytest.raises(FormatError, match="is not an HDF5 file"):
        salvage(path, tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()
