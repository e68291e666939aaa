"""Repair of files and folders.

Covers `shardkeep.jobs.salvage.job`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import (
    DurabilityError,
    ExistsError,
    FormatError,
    LockHeldError,
    NotFoundError,
    PlanError,
    TruncatedFileError,
)
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.jobs import verify
from shardkeep.jobs.repair import repair
from shardkeep.jobs.salvage import job
from shardkeep.tfrecord import Reader
from shardkeep.world import World
from tests.damaged_runs import make_run, read_merged
from tests.small_disk import mounted
from tests.unit.jobs.salvage.test_collected import _killed as killed_collector
from tests.unit.jobs.verification.damage import DAMAGE, flip, records, shards


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def damaged(here: Path) -> Path:
    """A file with a hole in its first hundred records."""
    path = records(Path("a.tfrecord"))
    data = path.read_bytes()
    path.write_bytes(data[:1000] + bytes(300) + data[1300:])
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {
        os.path.relpath(path, folder): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


def test_verify_repair_verify(damaged: Path) -> None:
    before, seen = damaged.read_bytes(), []
    report = repair("a.tfrecord", "b.tfrecord", progress=lambda done, total: seen.append((done, total)))
    assert not report.ok and (report.output, report.intact) == ("b.tfrecord", 0)
    (one,) = report.files
    assert (one.path, one.output, one.file_bytes) == ("a.tfrecord", "b.tfrecord", len(before))
    outcomes = [part.outcome for part in one.parts]
    assert (outcomes[0], set(outcomes[1:-1]), outcomes[-1]) == ("kept", {"lost"}, "kept")
    assert verify("b.tfrecord").ok
    whole = list(Reader("b.tfrecord"))
    assert one.items("kept") == len(whole) < 100
    assert damaged.read_bytes() == before
    assert seen[-1][0] == seen[-1][1] > 0 and seen == sorted(seen)


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_an_undamaged_file_is_copied_unchanged(here: Path, compression: str | None) -> None:
    records(here / "a", compression=compression)
    report = repair(here / "a", here / "b")
    assert (report.ok, report.files, report.intact, report.output) == (True, (), 1, str(here / "b"))
    assert (here / "b").read_bytes() == (here / "a").read_bytes()


def test_an_undamaged_hdf5_file_is_copied_unchanged(here: Path) -> None:
    with h5py.File("a.h5", "w") as file:
        file["x"] = np.arange(1000)
    report = repair("a.h5", "b.h5")
    assert (report.ok, report.files, report.intact) == (True, (), 1)
    assert Path("a.h5").read_bytes() == Path("b.h5").read_bytes()


def test_a_dry_run_writes_nothing_and_reports_the_same(damaged: Path, here: Path) -> None:
    before = tree(here)
    report = repair("a.tfrecord", dry_run=True)
    assert tree(here) == before
    assert (report.dry_run, report.output) == (True, None)
    assert repair("a.tfrecord", "new", dry_run=True).output is None
    assert tree(here) == before
    real = repair("a.tfrecord", "new")
    assert [one.parts for one in real.files] == [one.parts for one in report.files]
    with pytest.raises(ExistsError):
        repair("a.tfrecord", "new", dry_run=True)


def test_a_read_only_original_on_a_read_only_medium(damaged: Path, here: Path) -> None:
    with mounted(here / "disk", "4m") as disk:
        original = disk / "a.tfrecord"
        original.write_bytes(damaged.read_bytes())
        original.chmod(0o444)
        os.system(f"mount -o remount,ro {disk}")
        before = os.stat(original)
        assert repair(original, "new").files[0].output == "new"
        after = os.stat(original)
        assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
        assert original.read_bytes() == damaged.read_bytes() and os.listdir(disk) == ["a.tfrecord"]
        with pytest.raises(DurabilityError) as caught:
            repair(original, disk / "new")
        assert caught.value.errno == errno.EROFS


def test_a_full_disk_leaves_nothing(damaged: Path, here: Path) -> None:
    Path("data").mkdir()
    for name in ("a", "b"):
        records(Path(f"data/{name}.tfrecord"), 40_000)
        flip(Path(f"data/{name}.tfrecord"), 50)
    with mounted(here / "disk", "3m") as disk:
        with pytest.raises(DurabilityError) as caught:
            repair("data/a.tfrecord", disk / "new")
        assert caught.value.errno == errno.ENOSPC and os.listdir(disk) == []
        os.truncate("data/a.tfrecord", 100_000)
        with pytest.raises(DurabilityError):
            repair("data", disk / "new")
        assert os.listdir(disk) == []


def test_missing_and_wrong_arguments(damaged: Path) -> None:
    with pytest.raises(PlanError, match="output is missing"):
        repair("a.tfrecord")
    with pytest.raises(PlanError, match="exists='append' is not valid"):
        repair("a.tfrecord", "b", exists="append")  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="gone: no such file"):
        repair("gone", "b")
    with pytest.raises(ExistsError, match="exists"):
        repair("a.tfrecord", "/etc/hostname")
    with pytest.raises(PlanError, match="is the damaged file itself"):
        repair("a.tfrecord", "./a.tfrecord", exists="replace")
    assert sorted(os.listdir()) == ["a.tfrecord"]


def test_other_kinds_are_named(damaged: Path) -> None:
    Path("empty.tfrecord").touch()
    with pytest.raises(TruncatedFileError, match=r"empty.tfrecord: has no bytes"):
        repair("empty.tfrecord", "b")
    Path("notes.txt").write_text("hello")
    with pytest.raises(FormatError, match="found plain text that begins 'hello'"):
        repair("notes.txt", "b")
    Path("page.tfrecord").write_text("<html>404")
    with pytest.raises(FormatError, match=r"page.tfrecord: expected .*found an HTML page"):
        repair("page.tfrecord", "b")
    Path("a.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(FormatError, match="a zip archive"):
        repair("a.zip", "b")
    Path("a.tfrecord.skidx").write_bytes(b"x" * 100)
    with pytest.raises(FormatError, match=r"a.tfrecord.skidx is an index of Shardkeep, not a data file"):
        repair("a.tfrecord.skidx", "b")
    os.mkfifo("pipe")
    with pytest.raises(FormatError, match="a named pipe"):
        repair("pipe", "b")
    Path("folder/sub").mkdir(parents=True)
    Path("folder/sub/notes.txt").touch()
    with pytest.raises(NotFoundError, match="no TFRecord or HDF5 file in this folder"):
        repair("folder", "b")
    assert not os.path.exists("b")


def test_the_damaged_files_of_a_folder_keep_their_names(here: Path) -> None:
    (here / "data/x").mkdir(parents=True)
    paths = shards(here / "data")
    records(here / "data/x/whole.tfrecord")
    bad = records(here / "data/x/bad.tfrecord")
    for path in (paths[1], bad):
        flip(path)
    before = tree(here / "data")
    report = repair("data", "out")
    assert [one.output for one in report.files] == ["out/t-00001-of-00004", "out/x/bad.tfrecord"]
    assert sorted(tree(here / "out")) == ["t-00001-of-00004", "x", "x/bad.tfrecord"]
    assert (report.intact, report.output) == (4, "out")
    assert tree(here / "data") == before
    assert verify(["out/x/bad.tfrecord", "out/t-00001-of-00004"]).ok
    with pytest.raises(ExistsError, match="is not empty"):
        repair("data", "out")
    assert repair("data", "out", exists="replace").files == report.files


def test_a_file_that_cannot_be_salvaged_does_not_end_the_repair_of_a_folder(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("data").mkdir()
    Path("data/noise.h5").write_bytes(np.random.default_rng(0).bytes(3000))
    flip(records(Path("data/a.tfrecord")))
    good, bad = repair("data", "out").files
    assert (good.output, bad.path, bad.output) == ("out/a.tfrecord", "data/noise.h5", None)
    assert [part.outcome for part in bad.parts] == ["lost"] and "HDF5" in bad.parts[0].reason
    with pytest.raises(FormatError):
        repair("data/noise.h5", "new")

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(job, "salvage_records", fails)
    lost = repair("data", dry_run=True).files[0]
    assert lost.parts[0].reason == f"data/a.tfrecord cannot be read: {os.strerror(errno.EIO)}"
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        repair("data/a.tfrecord", "new")


def test_a_folder_without_damage_makes_no_folder(here: Path) -> None:
    Path("data").mkdir()
    shards(Path("data"))
    report = repair("data", "out")
    assert (report.ok, report.output, report.files, report.intact) == (True, None, (), 4)
    assert os.listdir() == ["data"]


@pytest.mark.parametrize("name", ["no bytes", "a page", "a pointer", "a message", "a dangling link"])
def test_a_shard_of_which_nothing_is_there_is_lost(name: str, here: Path) -> None:
    Path("data").mkdir()
    paths = shards(Path("data"), suffix=".tfrecord")
    DAMAGE[name][0](paths[1])
    report = repair("data", "out")
    (one,) = report.files
    assert (one.path, one.output, one.ok, report.intact) == (str(paths[1]), None, False, 3)
    assert one.parts[0].outcome == "lost" and str(paths[1]) in one.parts[0].reason
    assert not os.path.exists("out")


def test_a_missing_shard_is_named(here: Path) -> None:
    Path("data").mkdir()
    paths = shards(Path("data"))
    flip(paths[0])
    paths[2].unlink()
    file, group = repair("data", "out").files
    assert file.output is not None
    assert (group.kind, group.output, group.file_bytes) == ("set", None, 0)
    assert "shard 00002 is missing" in group.parts[0].reason
    assert os.listdir("out") == ["t-00000-of-00004"]


def test_a_file_that_is_being_written_is_refused(damaged: Path, here: Path) -> None:
    Path("data").mkdir()
    os.rename("a.tfrecord", "data/a.tfrecord")
    records(Path("data/whole.tfrecord"))
    with open("data/a.tfrecord", "ab"):
        for path in ("data/a.tfrecord", "data"):
            for dry_run in (False, True):
                with pytest.raises(LockHeldError, match=rf"data/a.tfrecord.*pid {os.getpid()}"):
                    repair(path, "out", dry_run=dry_run)
    with open("data/whole.tfrecord", "ab"):
        assert repair("data", "out").output == "out"


def test_a_file_that_changes_during_the_repair_is_refused(
    damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salvage = job.SalvageJob.run

    def slowly(self: job.SalvageJob, *arguments: object) -> object:
        result = salvage(self, *arguments)  # type: ignore[arg-type]
        with damaged.open("ab") as file:
            file.write(b"more")
        return result

    monkeypatch.setattr(job.SalvageJob, "run", slowly)
    with pytest.raises(LockHeldError, match="changed while it was repaired"):
        repair("a.tfrecord", "out")
    assert os.listdir() == ["a.tfrecord"]


def test_an_output_below_a_link_to_an_original_is_refused(damaged: Path) -> None:
    Path("data").mkdir()
    os.rename("a.tfrecord", "data/a.tfrecord")
    Path("out").mkdir()
    os.symlink("../data/a.tfrecord", "out/a.tfrecord")
    before = Path("data/a.tfrecord").read_bytes()
    with pytest.raises(PlanError, match="is the damaged file itself"):
        repair("data", "out", exists="replace")
    assert Path("data/a.tfrecord").read_bytes() == before


def test_the_whole_segments_of_a_run_can_be_merged(here: Path) -> None:
    segments = make_run(Path("run"), 2, 3)
    flip(segments[1, 1], segments[1, 1].stat().st_size - 900)
    before = tree(here / "run")
    (one,) = repair("run", "out").files
    assert (one.kind, one.output, one.ok) == ("run", "out", False)
    assert tree(here / "run") == before
    with pytest.warns(RuntimeWarning, match="commit 1 of rank 1 is missing"):
        merge("out", "all.h5", incomplete="warn")
    assert read_merged(Path("all.h5")) == {(rank, n) for rank in range(2) for n in range(3)} - {(1, 1)}


def test_a_damaged_run_in_a_folder_with_other_files(here: Path) -> None:
    segments = make_run(Path("data/run"), 1, 2)
    flip(segments[0, 0], segments[0, 0].stat().st_size - 900)
    flip(records(Path("data/a.tfrecord")))
    records(Path("data/b.tfrecord"))
    report = repair("data", "out")
    assert [(one.path, one.kind, one.output) for one in report.files] == [
        ("data/a.tfrecord", "tfrecord", "out/a.tfrecord"),
        ("data/run", "run", "out/run"),
    ]
    assert report.intact == 1


def test_a_run_that_a_worker_writes_is_refused(here: Path) -> None:
    segments = make_run(Path("run"), 1, 2)
    with WorkerFile("run", World(0, 1)):
        flip(segments[0, 0], segments[0, 0].stat().st_size - 900)
        with pytest.raises(LockHeldError, match=rf"run/rank-00000.*pid {os.getpid()}"):
            repair("run", "out")
    assert not Path("out").exists()


def test_the_log_of_a_killed_collector_is_applied_to_the_copy_only(here: Path) -> None:
    path = killed_collector(here / "data")
    before = tree(here / "data")
    for source, output in ((path, here / "new.h5"), (here / "data", here / "out")):
        (one,) = repair(source, output).files
        assert one.kind == "collected" and one.ok
    assert tree(here / "data") == before
    with h5py.File("new.h5") as file, h5py.File("out/all.h5") as other:
        assert len(file["x"]) == len(other["x"]) > 0
