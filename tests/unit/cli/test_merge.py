"""The command ``shardkeep merge``.

Covers `shardkeep.cli.output.merge`.
"""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest

from shardkeep.cli.app import run
from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for rank in range(2):
        with WorkerFile("run", World(rank=rank, size=2)) as out:
            out.append("loss", [0.5, rank])
            out.commit(step=1)
    return tmp_path


def sources() -> list[str]:
    return sorted(map(str, Path("run").rglob("*.h5")))


@pytest.mark.parametrize("form", ["folder", "folder and -o", "files", "files and -o"])
def test_every_form_of_the_call(folder: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    given = ["run"] if form.startswith("folder") else sources()
    arguments = ["-o", "all.h5", *given] if form.endswith("-o") else [*given, "all.h5"]
    assert run(["merge", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "2 files into all.h5" in printed
    with h5py.File("all.h5") as file:
        assert file["loss"][:].tolist() == [0.5, 0, 0.5, 1]


def test_for_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["merge", "run", "all.h5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == {"loss": 4}


@pytest.mark.parametrize("check", ["sample", "full"])
def test_what_was_compared_is_said(folder: Path, capsys: pytest.CaptureFixture[str], check: str) -> None:
    assert run(["merge", "run", "all.h5", "--check", check, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["check"] == check and set(report["compared"]) == set(report["rows"])
    assert run(["merge", "run", "all.h5", "--check", check, "--exists", "replace"]) == 0
    compared, rows = sum(report["compared"].values()), sum(report["rows"].values())
    assert 0 < compared <= rows and (check == "sample" or compared == rows)
    assert f"{compared:,} of {rows:,} rows, by value" in capsys.readouterr().out


def test_output_is_not_overwritten_unless_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("all.h5").write_text("mine")
    assert run(["merge", "run", "all.h5"]) == 2
    assert "all.h5" in capsys.readouterr().err
    assert Path("all.h5").read_text() == "mine"
    assert run(["merge", "run", "all.h5", "--exists", "replace"]) == 0
    assert Path("all.h5").read_bytes().startswith(b"\x89HDF")


def test_bad_input_leaves_no_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["merge", "run"]) == 2
    assert "SOURCES... OUTPUT" in capsys.readouterr().err
    assert run(["merge", "gone", "all.h5"]) == 10
    Path(sources()[0]).write_bytes(b"hello")
    assert run(["merge", "run", "all.h5"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 2
    assert "rank-00000" in err
    assert not Path("all.h5").exists()
    assert sorted(path.name for path in folder.iterdir()) == ["run"]


def test_no_place_for_the_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["merge", "run", "gone/all.h5"]) in (2, 3, 10)
    assert capsys.readouterr().err.count("\n") == 1


def test_an_uneven_run_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, steps in ((0, 2), (1, 1)):
        with WorkerFile(tmp_path / "run", World(rank, 2)) as out:
            for step in range(1, steps + 1):
                out.append("loss", [0.5])
                out.commit(step=step)
    merge = ["merge", str(tmp_path / "run")]
    assert run([*merge, str(tmp_path / "a.h5"), "--incomplete", "warn"]) == 0
    warned = capsys.readouterr().err
    assert warned.startswith("shardkeep: warning: ")
    assert "rank 1" in warned
    assert run([*merge, str(tmp_path / "b.h5"), "--incomplete", "allow"]) == 0
    assert capsys.readouterr().err == ""
    assert run([*merge, str(tmp_path / "c.h5")]) == 3
    assert not (tmp_path / "c.h5").exists()


def test_only_the_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["merge", "run", "all.h5", "--dry-run", "--order-by", "step"]) == 0
    printed = capsys.readouterr().out
    assert "2 files into 'all.h5': copy" in printed and "by step" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert run(["merge", "run", "all.h5", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in plan["datasets"]] == ["loss"]
    assert not Path("all.h5").exists()


def test_who_has_what(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, dtype in (("a.h5", "i4"), ("b.h5", "i8")):
        with h5py.File(name, "w") as file:
            file.create_dataset("x", data=[1, 2], dtype=dtype)
    assert run(["merge", "a.h5", "b.h5", "all.h5"]) == 2
    err = capsys.readouterr().err
    assert "int32 rows" in err and "int64 rows" in err and "which" in err
    assert err.splitlines()[-1].startswith("shardkeep: error: dataset 'x'")
    assert run(["merge", "*.h5", "-o", "all.h5", "--on-mismatch", "promote"]) == 0


def test_what_there_is_not(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "plain").mkdir()
    h5py.File("plain/a.h5", "w").close()
    (folder / "empty").mkdir()
    for source, said in (
        ("gone.h5", "no file or folder 'gone.h5'"),
        ("run/rank-00001", "the folder of one rank: pass that of the run, 'run', or"),
        ("plain", "pass a pattern, 'plain/*.h5'"),
        ("empty", "'empty' has no worker files"),
    ):
        assert run(["merge", source, "all.h5"]) == 10
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1


def test_advice_is_given_in_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("all.h5").write_text("mine")
    assert run(["merge", "run", "all.h5"]) == 2
    assert "allow --exists replace" in capsys.readouterr().err


def test_many_differences_fit_a_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(12):
        with WorkerFile(tmp_path / "run", World(rank, 12)) as out:
            for number in range(30):
                out.append(f"d{number}", [rank if rank % 2 else 0.5])
            out.commit(step=1)
    assert run(["merge", str(tmp_path / "run"), str(tmp_path / "all.h5")]) == 2
    *table, error = [line.rstrip() for line in capsys.readouterr().err.splitlines()]
    assert len(table) == 26 and max(map(len, table)) <= 80
    assert table[2].endswith(" 6  ranks 1, 3, 5, 7, 9, 11")
    assert table[-1] == "and 18 more"
    assert "(and 29 more differences)" in error


def test_a_table_of_what_was_done_has_one_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["merge", "run/rank-00000/00000000-step-1.h5", "all.h5", "--incomplete", "allow"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(maxsplit=1)[1] == "1 file into all.h5"
    assert lines[-1].split(maxsplit=2) == ["loss", "2", "rows: copied and checked, since not compressed"]


@pytest.mark.parametrize("command", ["merge", "concat"])
def test_a_forgotten_output_costs_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"part-{number:03}" for number in range(3)]
    for name in names:
        Path(name).write_text(name)
    assert run([command, *names, "--exists", "replace"]) == 2
    assert (
        "'part-002' would be replaced, but its name is like those of the sources" in capsys.readouterr().err
    )
    assert [Path(name).read_text() for name in names] == names
