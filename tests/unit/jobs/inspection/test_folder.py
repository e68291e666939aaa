from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest

from shardkeep.jobs import FolderInfo, KindInfo, info
from shardkeep.jobs.inspection.folder import folder_info
from shardkeep.tfrecord import build_index
from tests.unit.jobs.verification.damage import flip, records, shards


def found(path: Path) -> FolderInfo:
    result = info(path)
    assert isinstance(result, FolderInfo)
    return result


def test_files_are_summed_up_by_kind(tmp_path: Path) -> None:
    build_index(shards(tmp_path, 3, suffix=".tfrecord"))
    records(tmp_path / "c.tfrecord.gz", 7, "gzip")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1]
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "more.txt").write_text("other words")
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.h5.lock").touch()
    result = found(tmp_path)
    kinds = {one.described: (one.files, one.records) for one in result.kinds}
    assert kinds == {
        "a TFRecord file": (3, 150),
        "a gzip-compressed TFRecord file": (1, 7),
        "an HDF5 file": (1, None),
        "an index of Shardkeep": (3, None),
        "a lock file": (1, None),
        "plain text": (2, None),
        "a folder": (1, None),
    }
    assert result.records == 157
    shards_bytes = sum(path.stat().st_size for path in tmp_path.glob("t-*.tfrecord"))
    assert KindInfo("a TFRecord file", 3, shards_bytes, 150) in result.kinds
    assert sum(one.file_bytes for one in result.kinds) == sum(one.file_bytes for one in result.files)
    assert json.loads(json.dumps(result.to_dict()))["records"] == 157


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_damaged_files_are_named_and_not_counted(compression: str | None, tmp_path: Path) -> None:
    paths = [records(tmp_path / f"part{i}.tfrecord", 10, compression) for i in range(4)]
    flip(paths[0], 3)
    flip(paths[0], 30)
    paths[1].write_text("<html>404")
    paths[2].write_bytes(b"")
    result = found(tmp_path)
    faults = [entry.fault for entry in result.files]
    assert all(str(path) in fault for path, fault in zip(paths[:3], faults[:3], strict=True) if fault)
    assert None not in faults[:3] and faults[3] is None
    assert result.records == 10
    assert {one.described: one.files for one in result.kinds} == {
        "a data file that cannot be read": 3,
        result.files[3].described: 1,
    }


def test_missing_shards_are_named(tmp_path: Path) -> None:
    shards(tmp_path, 8)[3].unlink()
    (text,) = found(tmp_path).findings
    assert text == "t-?????-of-00008: shard 00003 is missing; found 7 of 8"


def test_records_are_counted_with_progress(tmp_path: Path) -> None:
    paths = shards(tmp_path, 3)
    total_bytes = sum(path.stat().st_size for path in paths)
    reports: list[tuple[int, int]] = []
    folder_info(str(tmp_path), lambda done, total: reports.append((done, total)))
    assert reports[-1] == (total_bytes, total_bytes)


def test_empty_folder(tmp_path: Path) -> None:
    assert found(tmp_path) == FolderInfo(str(tmp_path), (), ())
