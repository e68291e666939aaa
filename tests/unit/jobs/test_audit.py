"""Tests of the audit.

Covers `shardkeep.hdf5.sources.receipts`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardkeep.errors import CorruptDataError, FormatError, NotFoundError
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.jobs import audit
from shardkeep.jobs.audit import receipts_in_json
from shardkeep.plan import Dataset, Receipt, Segment
from shardkeep.world import World


def receipt(rank: int, *, steps: int = 3, size: int = 2, start: int = 0) -> dict[str, Any]:
    """Return what rank `rank` of 2 has after `steps` of the 3 steps of an epoch of 12 records."""
    return Receipt(
        id=f"{size:016d}{rank:016d}",
        rank=rank,
        world_size=size,
        batch_size=2,
        remainder="mask",
        dataset=Dataset("c0ffee", 12, ("a", "b"), (5, 7)),
        shuffle="global",
        seed=7,
        segments=(Segment(0, start, steps),),
    ).to_dict()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    for rank in range(2):
        with WorkerFile(run, World(rank=rank, size=2)) as out:
            for step in (1, 3):
                out.append("loss", [0.5])
                out.commit(step=step, receipt=receipt(rank, steps=step))
    return run


def test_run_folder(run: Path) -> None:
    report = audit(run)
    assert report.ok
    assert (report.receipts, report.epochs[0].delivered) == (2, 12)


def test_merged_file(run: Path, tmp_path: Path) -> None:
    merge(run, tmp_path / "all.h5")
    assert audit([tmp_path / "all.h5"]).ok
    # Found twice, counted once.
    assert audit([tmp_path / "all.h5", run]).receipts == 2


def test_json(tmp_path: Path) -> None:
    one, both = tmp_path / "0.json", tmp_path / "both.json"
    one.write_text(json.dumps(receipt(0), indent=1))
    both.write_text(json.dumps([receipt(0), receipt(1)]))
    assert audit(both).ok
    missing = audit(str(one))
    assert not missing.ok
    assert missing.epochs[0].lost.records == 6
    # A folder: its receipts count, other JSON in it does not.
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[1, 2]")
    assert audit(tmp_path).ok


def test_epochs(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([receipt(0), receipt(1)]))
    assert audit(tmp_path, epochs=[0]).ok
    assert not audit(tmp_path, epochs=[0, 1]).ok


@pytest.mark.parametrize("content", ["{}", "[1]", '{"segment": 1}x', "[{}]"])
def test_json_without_a_receipt_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(FormatError) as caught:
        audit(path)
    assert caught.value.path == str(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("indent", [None, 1])
def test_no_flipped_bit_of_a_receipt_in_a_folder_is_passed_over(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "receipts.json"
    text = json.dumps([receipt(0)], indent=indent).encode()
    for place in range(1, len(text)):
        damaged = bytearray(text)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert receipts_in_json(str(path), stray=True) == [receipt(0)]  # white space is not content
        except CorruptDataError as error:
            assert error.path == str(path)


def test_other_json_in_a_folder_is_passed_over(run: Path) -> None:
    (run / "settings.json").write_text('{"rate": 0.1}')
    (run / "torn.json").write_text('{"rate": 0.')
    assert audit(run).ok


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        audit(tmp_path / "gone")
    with pytest.raises(NotFoundError, match=r"no receipt found .*receipt=loader\.receipt"):
        audit(tmp_path)
    with pytest.raises(NotFoundError, match="no path was passed"):
        audit([])


def test_another_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hello")
    with pytest.raises(FormatError, match="expected an HDF5 file or JSON receipts, found plain text"):
        audit(tmp_path / "a")
