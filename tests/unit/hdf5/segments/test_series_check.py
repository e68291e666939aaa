from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5 import WorkerFile, merge, rollback
from shardkeep.hdf5.segments.run_folder import list_segments
from shardkeep.jobs import info, verify
from shardkeep.world import World

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
        assert any("of different runs" in one for file in found for one in file.findings)
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
        assert any(name in one for file in verify(tmp_path).files for one in file.findings)


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
