from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import (
    CorruptDataError,
    PlanError,
)
from shardkeep.hdf5 import WorkerFile, merge, rollback
from shardkeep.hdf5.segments.run_folder import list_segments
from shardkeep.jobs import info, verify
from shardkeep.world import World
from tests.unit.hdf5.merge.plain_files import read

OLD = Path(__file__).parents[3] / "data" / "old" / "run"


def series(run: Path, *openings: int) -> list[Path]:
    """Write commits of one rank, so many in each opening of its file."""
    step = 0
    for commits in openings:
        with WorkerFile(run, World(0, 1)) as out:
            for _ in range(commits):
                out.append("x", [float(step)])
                out.commit(step=step)
                step += 1
    return sorted((run / "rank-00000").glob("*.h5"))


def test_a_series_of_several_openings_is_one_run(tmp_path: Path) -> None:
    series(tmp_path / "run", 2, 1, 3)
    rollback(tmp_path / "run", step=3)
    with WorkerFile(tmp_path / "run", World(0, 1)) as out:
        out.append("x", [4.0])
        out.commit(step=4)
    merge(tmp_path / "run", tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("place", range(4))
def test_a_segment_of_another_run_is_named_at_any_place(place: int, tmp_path: Path) -> None:
    mine, others = series(tmp_path / "a", 2, 2), series(tmp_path / "b", 4)
    shutil.copy(others[place], mine[place])
    for refused in (lambda: merge(tmp_path / "a", tmp_path / "all.h5"), lambda: info(tmp_path / "a")):
        with pytest.raises(CorruptDataError, match="of different runs") as caught:
            refused()
        assert mine[place].name in str(caught.value)
    with pytest.raises(CorruptDataError, match="of different runs"):
        merge(mine, tmp_path / "all.h5")
    if place == 1:
        found = verify(tmp_path / "a").files
        assert any("of different runs" in one.message for file in found for one in file.findings)
    if place >= 2:
        with pytest.raises(CorruptDataError, match="of different runs"):
            WorkerFile(tmp_path / "a", World(0, 1))


def without_checksum(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        values = json.loads(bytes(file["_commit"][()]))
        del values["crc32c"], values["previous"], file["_commit"]
        text = json.dumps(values | {"format": 1}).encode()
        file.create_dataset("_commit", data=np.array(text, h5py.string_dtype("utf-8", len(text))))


def test_a_segment_of_another_run_is_found_in_old_series_too(tmp_path: Path) -> None:
    mine, others = series(tmp_path / "a", 3), series(tmp_path / "b", 3)
    for path in (*mine, *others):
        without_checksum(path)
    merge(tmp_path / "a", tmp_path / "all.h5")
    shutil.copy(others[1], mine[1])
    with pytest.raises(CorruptDataError, match=rf"{mine[2].name}.*{mine[1].name}.* of different runs"):
        merge(tmp_path / "a", tmp_path / "more.h5")


@pytest.mark.parametrize("name", ["rank-000000", "rank-0", "rank-00001", "rank-0000000000001"])
def test_a_folder_that_no_worker_made_is_named(name: str, tmp_path: Path) -> None:
    series(tmp_path, 1)
    shutil.copytree(tmp_path / "rank-00000", tmp_path / name)
    if name == "rank-00001":
        with pytest.raises(CorruptDataError, match="not the segment that its name says"):
            merge(tmp_path, tmp_path / "all.h5")
        return
    for refused in (
        lambda: merge(tmp_path, tmp_path / "all.h5"),
        lambda: info(tmp_path),
        lambda: rollback(tmp_path, step=-1),
    ):
        with pytest.raises(CorruptDataError, match=f"{name}' was not made by the worker of rank") as caught:
            refused()
        assert caught.value.path == str(tmp_path / name)
    assert len(list_segments(str(tmp_path / "rank-00000"))) == 1
    if name == "rank-0":
        assert any(name in one.message for file in verify(tmp_path).files for one in file.findings)


def test_folders_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other" / "rank-0").mkdir(parents=True)
    shutil.copy(OLD.parent / "merged.h5", tmp_path / "other" / "rank-0")
    assert verify(tmp_path).ok
    series(tmp_path / "run", 1)
    (tmp_path / "run" / "rank-00000.backup").mkdir()
    (tmp_path / "run" / "rank-1").write_text("a log")
    (tmp_path / "run" / "rank-00001\n").mkdir()
    assert merge(tmp_path / "run", tmp_path / "all.h5").rows == {"x": 1}


def test_a_segment_with_another_name_than_a_worker_chooses_is_named(tmp_path: Path) -> None:
    (path,) = series(tmp_path, 1)
    for name in ("0-step-0.h5", "00000000-step-00.h5", "1-step-1.h5"):
        odd = path.with_name(name)
        shutil.copy(path, odd)
        with pytest.raises(CorruptDataError, match=name):
            merge(tmp_path, tmp_path / "all.h5")
        odd.unlink()


# -- incomplete runs -----------------------------------------------------------------------------------


def _run(run, size, *steps, ranks=None):
    """Let ranks commit one row per step, as one world; return the folder."""
    for rank in range(size) if ranks is None else ranks:
        with WorkerFile(run, World(rank=rank, size=size)) as out:
            for step in steps:
                out.append("x", [rank + step / 10])
                out.commit(step=step)
    return run


def _segments(run):
    return sorted(run.glob("rank-*/*.h5"))


def _findings(sources, output):
    """Merge twice: with the warning as an error nothing is written, then the findings are reported."""
    with pytest.raises(RuntimeWarning, match="the merged run is not complete"):
        merge(sources, output, incomplete="warn")
    with pytest.raises(CorruptDataError, match='complete the run, or allow incomplete="warn"'):
        merge(sources, output)
    assert not output.exists()
    report = merge(sources, output, incomplete="allow")
    assert report.to_dict()["findings"] == report.findings
    with pytest.warns(RuntimeWarning, match="the merged run is not complete"):
        merge(sources, output, exists="replace", incomplete="warn")
    return report.findings


def test_a_complete_run_has_no_findings(tmp_path):
    run = _run(tmp_path / "run", 3, 1, 2)
    assert merge(run, tmp_path / "a.h5", incomplete="refuse").findings == ()
    assert merge(_segments(run), tmp_path / "b.h5", incomplete="refuse").findings == ()
    with pytest.raises(PlanError, match="incomplete"):
        merge(run, tmp_path / "c.h5", incomplete="maybe")


@pytest.mark.parametrize("listed", [False, True])
def test_a_rank_without_commits_is_a_finding(tmp_path, listed):
    run = _run(tmp_path / "run", 8, 1, 2, 3, ranks=[0, 2])
    sources = _segments(run) if listed else run
    (text,) = _findings(sources, tmp_path / "a.h5")
    assert text == (
        f"ranks 1, 3, 4, 5, 6 and 1 more of 8 have no commit (the newest is step 3) in {str(run)!r}"
    )
    assert read(tmp_path / "a.h5").tolist() == [0.1, 0.2, 0.3, 2.1, 2.2, 2.3]


@pytest.mark.parametrize("listed", [False, True])
def test_a_rank_that_lost_its_newest_commit_is_a_finding(tmp_path, listed):
    run = _run(tmp_path / "run", 2, 1, 2, 3)
    os.unlink(_segments(run)[-1])
    (text,) = _findings(_segments(run) if listed else run, tmp_path / "a.h5")
    assert text.startswith("rank 1 of 2 ended at step 2, the newest commit is step 3 in ")


def test_commits_that_are_missing_in_a_run_are_findings(tmp_path):
    run = _run(tmp_path / "run", 2, 1, 2, 3, 4)
    segments = _segments(run)
    for number in (1, 4, 5):
        os.unlink(segments[number])
    assert _findings(run, tmp_path / "a.h5") == (
        f"commit 1 of rank 0 is missing (1 row of 'x') in {str(run)!r}",
        f"commits 0 to 1 of rank 1 are missing (2 rows of 'x') in {str(run)!r}",
    )
    assert read(tmp_path / "a.h5").tolist() == [0.1, 0.3, 0.4, 1.3, 1.4]


def test_a_missing_commit_is_named_with_its_values(tmp_path):
    with WorkerFile(tmp_path / "run", World(rank=0, size=1)) as out:
        for step in range(3):
            out.append("x", [step])
            out.put(f"v{step}", step)
            out.commit(step=step)
    os.unlink(_segments(tmp_path / "run")[1])
    (text,) = _findings(tmp_path / "run", tmp_path / "a.h5")
    assert text.startswith("commit 1 of rank 0 is missing (1 row of 'x', the value 'v1') in ")
    with h5py.File(tmp_path / "a.h5") as file:
        assert "v0" in file and "v1" not in file and file["x"][:].tolist() == [0, 2]


def test_rows_that_occur_twice_after_a_gap_are_refused(tmp_path):
    """A commit after the missing one that begins before the rows end is of another run."""
    segments = _segments(_run(tmp_path / "run", 1, 1, 2, 3))
    with WorkerFile(tmp_path / "other", World(rank=0, size=1)) as out:
        for step in (1, 2, 3):
            out.declare("x", float)
            out.commit(step=step)
    os.unlink(segments[1])
    os.replace(_segments(tmp_path / "other")[2], segments[2])
    with pytest.raises(CorruptDataError, match="starts at row 0 of 'x', not where the one before ended"):
        merge(tmp_path / "run", tmp_path / "a.h5", incomplete="allow")


def test_a_list_with_a_gap_or_out_of_order_is_refused(tmp_path):
    one, two, three, *_ = _segments(_run(tmp_path / "run", 2, 1, 2, 3))
    for sources in ([one, three], [two, one], [one, three, two]):
        with pytest.raises(CorruptDataError, match="where the one before ended: list every segment"):
            merge(sources, tmp_path / "a.h5", incomplete="allow")
    assert not (tmp_path / "a.h5").exists()


def test_a_list_that_begins_in_the_middle_is_a_finding(tmp_path):
    run = _run(tmp_path / "run", 1, 1, 2, 3)
    texts = _findings(_segments(run)[1:], tmp_path / "a.h5")
    assert texts == ("the list begins with commit 1 (step 2) of rank 0, not with commit 0",)
    assert read(tmp_path / "a.h5").tolist() == [0.2, 0.3]


def test_a_list_may_have_segments_of_two_runs(tmp_path):
    sources = [path for name in "ab" for path in _segments(_run(tmp_path / name, 2, 1, 2))]
    assert merge(sources, tmp_path / "all.h5", incomplete="refuse").rows == {"x": 8}


@pytest.mark.parametrize("step", [1, -1])
def test_commits_of_ranks_that_a_smaller_world_lacks_are_a_finding(tmp_path, step):
    """Only hdf5.rollback reaches ranks that no longer exist."""
    run = _run(tmp_path / "run", 3, 1, 2, 3)
    with WorkerFile(run, World(rank=0, size=1)) as out:
        out.rollback(step=step)
        out.append("x", [0.2, 0.2, 0.2])
        out.commit(step=2)
    (text,) = _findings(run, tmp_path / "a.h5")
    assert text.startswith("ranks 1, 2 of an earlier world have commits up to step 3, although a world of 1")
    assert "hdf5.rollback" in text
    for rank in (1, 2):
        with WorkerFile(run, World(rank=rank, size=3)) as out:
            out.rollback(step=1)
    assert merge(run, tmp_path / "b.h5", incomplete="refuse").findings == ()


def test_worlds_may_shrink_and_grow_after_a_rollback(tmp_path):
    run = _run(tmp_path / "run", 4, 1, 2, 3)
    for size, start in ((3, 2), (4, 5), (2, 7)):
        rollback(run, step=start)
        _run(run, size, start + 1, start + 2, start + 3)
        merge(run, tmp_path / "a.h5", exists="replace", incomplete="refuse")


def test_the_world_size_of_a_record_is_checked(tmp_path):
    run = _run(tmp_path / "run", 10, 1, ranks=[0])
    path = _segments(run)[0]
    path.write_bytes(path.read_bytes().replace(b'"world_size":10', b'"world_size":-1'))
    with pytest.raises(CorruptDataError, match="record"):
        merge(run, tmp_path / "a.h5")
