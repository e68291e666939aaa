"""Files, folders and patterns are the same to every command."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest

from shardkeep.cli.app import run
from shardkeep.cli.options.paths import data_files, list_datasets
from shardkeep.errors import NotFoundError
from tests.odd_files import frame
from tests.unit.jobs.verification.damage import close_folder


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data/more").mkdir(parents=True)
    for name in ("data/a.tfrecord", "data/b.tfrecord", "data/more/c.tfrecord"):
        Path(name).write_bytes(frame(b"\x0a\x00") * 3)
    Path("data/README.md").write_text("# Data")
    Path("data/a.tfrecord.skidx").write_text("an index")
    with h5py.File("data/rows.h5", "w") as file:
        file["loss"] = [1, 2, 3]
        file["group/names"] = ["x"]


CALLS = [
    ["info", "{}"],
    ["cat", "{}", "--dataset", "loss"],
    ["schema", "{}"],
    ["index", "{}"],
    ["split", "{}", "out-{{shard}}", "--shards", "2"],
    ["concat", "{}", "out"],
    ["verify", "{}"],
]


@pytest.mark.parametrize("path", ["data", "data/*.tfrecord", "data/a.tfrecord"])
@pytest.mark.parametrize("call", CALLS, ids=[call[0] for call in CALLS])
def test_each_kind_of_path(call: list[str], path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([part.format(path) for part in call]) == 0, capsys.readouterr().err


def test_folder_stands_for_its_data_files() -> None:
    assert data_files(["data"], "tfrecord") == [
        "data/a.tfrecord",
        "data/b.tfrecord",
        "data/more/c.tfrecord",
    ]
    assert "data/rows.h5" in data_files(["data"], "tfrecord", "hdf5")


def test_damaged_shard_of_a_folder_is_not_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data/b.tfrecord").write_bytes(b"\xff" * 12 + frame(b"x") * 2)
    assert run(["concat", "data", "out"]) == 3
    assert "data/b.tfrecord" in capsys.readouterr().err
    Path("data/b.tfrecord").write_text("<html>sign in</html>")
    assert run(["concat", "data", "out"]) == 2
    assert "an HTML page" in capsys.readouterr().err


@pytest.mark.parametrize("call", ["index data", "cat data", "concat data out", "repair data out"])
def test_folder_that_cannot_be_read(
    call: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    close_folder(monkeypatch, "data")
    assert run(call.split()) == 2
    assert capsys.readouterr().err == "shardkeep: error: data: Permission denied\n"


def test_folder_without_data(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(NotFoundError, match="no file of this folder is tfrecord data"):
        data_files(["none"], "tfrecord")


def test_rows_and_records_of_several_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cat", "data/a.tfrecord", "data/b.tfrecord", "--skip", "2", "--limit", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == [
        "==> data/a.tfrecord <==",
        "record 2  2 bytes",
        "==> data/b.tfrecord <==",
        "record 0  2 bytes",
    ]
    assert run(["cat", "data/a.tfrecord", "data/rows.h5", "--dataset", "loss", "--json"]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["path"] for one in items] == ["data/a.tfrecord"] * 3 + ["data/rows.h5"] * 3


@pytest.mark.parametrize("name", ["loss", "/loss", "group/names"])
def test_dataset_after_a_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("loss").mkdir()  # the name of the dataset goes first
    assert run(["cat", "data/rows.h5", name]) == 0
    first = capsys.readouterr().out
    assert run(["cat", "data/rows.h5", "--dataset", name]) == 0
    assert capsys.readouterr().out == first


def test_info_of_several_paths_is_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", "data/*.tfrecord", "data/rows.h5", "--json"]) == 0
    assert [one["kind"] for one in json.loads(capsys.readouterr().out)] == ["tfrecord", "tfrecord", "hdf5"]


def test_datasets_of_damaged_and_odd_files() -> None:
    assert list_datasets("data/rows.h5") == ["group/names", "loss"]
    assert list_datasets("none") == []
    assert list_datasets("data/a.tfrecord") == []
    whole = Path("data/rows.h5").read_bytes()
    for size in (100, 700, len(whole) // 2):
        Path("cut.h5").write_bytes(whole[:size])
        assert list_datasets("cut.h5") == []
    with h5py.File("odd.h5", "w") as file:
        file["two\nlines"] = 1
        file["a b"] = 2
    assert list_datasets("odd.h5") == ["a b"]
