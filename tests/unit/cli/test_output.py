from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rich.table import Table

from shardkeep.cli.output import console, facts, print_info, print_item, print_json
from shardkeep.jobs import DatasetInfo, FileEntry, FolderInfo, HDF5Info, RecordItem, RowItem, WorkerInfo


def test_json_refuses_what_json_does_not_have() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"a": float("nan")})


def test_no_colour_and_80_columns_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    out = console()
    assert (out.is_terminal, out.width) == (False, 80)
    out.print(facts({"name": "x" * 200}))
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert printed.replace("\n", "").replace(" ", "") == "name" + "x" * 200
    assert isinstance(facts({}), Table)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (RecordItem(3, b"\x1b[31m", None), "record 3  5 bytes\n  '\\x1b[31m'\n"),
        (RecordItem(0, b"x" * 30, None), "record 0  30 bytes\n  'xxxxxxxxxxxxxxxxxxxxxxxx'… (30 bytes)\n"),
        (
            RecordItem(
                0,
                b"..",
                {"label": np.array([3]), "im\x1bage": [b"\x89P"], "w": np.arange(10, dtype="f4") / 10},
            ),
            "record 0  2 bytes\n"
            "  im\\x1bage  bytes    '\\x89P'\n"
            "  label      int64    3\n"
            "  w          float32  0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 … (2 more)\n",
        ),
        (RowItem("/x", 7, np.float32(0.1)), "7  0.1\n"),
        (RowItem("/x", 7, "a\x1bb"), "7  a\\x1bb\n"),
        (RowItem("/x", 7, np.arange(10)), "7  0 1 2 3 4 5 6 7 … (2 more)\n"),
        (RowItem("/x", 7, np.eye(2)), "7  [[1.0, 0.0], [0.0, 1.0]]\n"),
        (
            RowItem("/x", 7, np.array([(1, b"q", [1, 2])], [("a", "i4"), ("b", "S1"), ("c", "i4", 2)])[0]),
            "7  a=1  b='q'  c=1 2\n",
        ),
    ],
)
def test_items(capsys: pytest.CaptureFixture[str], item: RecordItem | RowItem, expected: str) -> None:
    print_item(item)
    assert capsys.readouterr().out == expected


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
