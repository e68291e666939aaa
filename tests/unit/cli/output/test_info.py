from __future__ import annotations

from typing import Any

import pytest

from shardkeep.cli.output.info import print_info
from shardkeep.jobs import DatasetInfo, FileEntry, FolderInfo, HDF5Info, WorkerInfo


def dataset(**changes: Any) -> DatasetInfo:
    given: dict[str, Any] = {
        "name": "loss",
        "shape": (1234, 2),
        "dtype": "float32",
        "chunks": (100, 2),
        "filters": ("shuffle", "deflate"),
        "stored_bytes": 2048,
        "virtual": False,
        "attributes": {"unit": "nats"},
    }
    return DatasetInfo(**given | changes)


def test_hdf5(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    worker = WorkerInfo("w.h5", 1, 4, 1, 30, {"loss": 1234})
    datasets = (dataset(), dataset(name="v", shape=(), chunks=None, virtual=True, attributes={}))
    print_info(HDF5Info("w.h5", 5000, {"run": "a\x1b"}, datasets, worker))
    printed = capsys.readouterr().out
    for words in (
        "one commit of a worker",
        "1 of 4",
        "4.9 KiB (5,000 bytes)",
        "1,234 × 2",
        "shuffle, deflate",
    ):
        assert words in printed
    for words in ("scalar", "virtual", "nats", "a\\x1b"):
        assert words in printed
    assert all(line == line.rstrip() and len(line) <= 80 for line in printed.splitlines())


def test_folder(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    workers = (WorkerInfo("r/0", 0, 2, 3, 30, {"loss": 60, "preds": 9}), WorkerInfo("r/1", 1, 2, 1, 1000, {}))
    print_info(FolderInfo("r", (FileEntry("0.h5", "an HDF5 file", 17),), workers))
    printed = capsys.readouterr().out
    for words in ("17 bytes", "an HDF5 file", "loss 60, preds 9", "1,000"):
        assert words in printed
