from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptDataError, FormatError
from shardkeep.hdf5 import WorkerFile, merge, verify
from shardkeep.hdf5.segments.commit_record import CommitRecord, DatasetRecord, PutRecord, parse_record
from shardkeep.jobs import audit
from shardkeep.plan.proof.sealed_json import sealed_text
from shardkeep.world import World
from tests.unit.jobs.test_audit import receipt

OLD = Path(__file__).parents[3] / "data" / "old"
RECORD = CommitRecord(
    rank=3,
    world_size=8,
    sequence=7,
    step=100,
    incarnation="9f" * 16,
    host="node7",
    pid=4711,
    created=1764283902.5,
    datasets={"größe": DatasetRecord(7168, 1024, "5a6b7c8d", "0a1b2c3d"), "a": DatasetRecord(0, 0, "0")},
    receipt=receipt(0),
    receipts={"0" * 32: 7},
    puts={"labels": PutRecord(0, "9b8a7f6e")},
)


def test_a_world_of_too_many_ranks_is_damage() -> None:
    text = replace(RECORD, world_size=10**15).to_json().encode()
    with pytest.raises(CorruptDataError, match="1,000,000,000,000,000 ranks"):
        parse_record(text, "x.h5")


def test_a_record_is_read_back_as_written() -> None:
    record = parse_record(RECORD.to_json().encode(), "x.h5")
    assert record == RECORD
    assert record.objects == ["größe", "a"]


def test_every_flipped_bit_is_damage() -> None:
    text = RECORD.to_json().encode()
    for bit in range(8 * len(text)):
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptDataError, match=r"x\.h5") as caught:
            parse_record(bytes(damaged), "x.h5")
        assert caught.value.path == "x.h5"


def test_a_later_format_is_named_and_a_missing_checksum_is_damage() -> None:
    later = sealed_text({**json.loads(RECORD.to_json()), "format": 4})
    values = json.loads(later)
    with pytest.raises(CorruptDataError):
        parse_record(json.dumps(values | {"rank": 4}).encode(), "x.h5")
    del values["crc32c"]
    with pytest.raises(FormatError, match="upgrade"):
        parse_record(sealed_text(values), "x.h5")
    with pytest.raises(CorruptDataError):
        parse_record(json.dumps(values | {"format": 2}).encode(), "x.h5")


def test_segments_of_older_formats_are_read(tmp_path: Path) -> None:
    merge(OLD / "run", tmp_path / "again.h5")
    for path in (OLD / "run", OLD / "merged.h5", OLD / "receipts.json", tmp_path / "again.h5"):
        report = audit(path)
        assert report.ok, path
        assert report.receipts == 2
    for path in (OLD / "merged.h5", OLD / "virtual.h5", tmp_path / "again.h5"):
        assert verify(path).findings == ()
        assert verify(path).rows == 24
    with h5py.File(tmp_path / "again.h5") as again, h5py.File(OLD / "merged.h5") as before:
        assert np.array_equal(again["loss"][:], before["loss"][:])
        assert np.array_equal(again["labels"][:], before["labels"][:])


def test_a_run_of_an_older_format_is_continued(tmp_path: Path) -> None:
    for old in sorted(OLD.glob("run/*/*.h5")):
        target = tmp_path / old.relative_to(OLD / "run")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(old.read_bytes())
    for rank in range(2):
        with WorkerFile(tmp_path, World(rank, 2)) as out:
            assert (out.committed_step, out.committed_rows) == (2, {"loss": 10, "text": 2})
            out.append("loss", np.float32([5.0]))
            out.commit(step=3)
    assert merge(tmp_path, tmp_path / "all.h5").rows["loss"] == 22


def test_a_segment_with_a_flipped_bit_is_damage_everywhere(tmp_path: Path) -> None:
    with WorkerFile(tmp_path / "run", World(0, 1)) as out:
        out.append("loss", [0.5])
        out.commit(step=1, receipt=receipt(0))
    (path,) = tmp_path.glob("run/*/*.h5")
    content = bytearray(path.read_bytes())
    content[content.index(b'"steps":') + 8] ^= 1  # of the receipt
    path.write_bytes(content)
    for refused in (
        lambda: audit(tmp_path / "run"),
        lambda: merge(tmp_path / "run", tmp_path / "all.h5"),
        lambda: verify(path),
        lambda: WorkerFile(tmp_path / "run", World(0, 1)),
    ):
        with pytest.raises(CorruptDataError, match="commit record") as caught:
            refused()
        assert caught.value.path == str(path)
