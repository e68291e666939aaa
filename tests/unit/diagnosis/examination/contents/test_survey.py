"""All checks of files together. Covers `shardkeep.diagnosis.examination.contents.check`."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest

from shardkeep.diagnosis.examination.contents.check import check_files
from shardkeep.diagnosis.examination.contents.survey import survey
from shardkeep.diagnosis.examination.report import Problem
from shardkeep.hdf5 import WorkerFile
from shardkeep.tfrecord import build_index
from shardkeep.world import World
from tests.unit.diagnosis.examination.contents.conftest import subject_of

Shards = Callable[..., list[Path]]

_events: Counter[str] | None = None


def _count(event: str, _: tuple[Any, ...]) -> None:
    if _events is not None:
        _events[event] += 1


sys.addaudithook(_count)


@pytest.fixture
def events() -> Iterator[Counter[str]]:
    """Number of opened files and of other calls that Python audits."""
    global _events
    _events = Counter()
    yield _events
    _events = None


def states_of(top: Path) -> dict[str, tuple[int, int, int, bytes]]:
    states = {}
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            content = Path(path).read_bytes() if os.path.isfile(path) else b""
            states[path] = status.st_mtime_ns, status.st_ctime_ns, status.st_ino, content
    return states


def test_nothing_is_changed(shards: Shards, tmp_path: Path) -> None:
    paths = shards(3, 0, 1)
    build_index(paths[0])
    paths[0].write_bytes(paths[0].read_bytes() * 2)
    for name in ("x.lock", "x.redo", "x.collector.json", "rank-00000-00.spill", "broken.h5"):
        (tmp_path / "data" / name).write_bytes(b"content")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["x"] = [1]
    with WorkerFile(tmp_path / "run", World(0, 1, 0, 1)) as out:
        out.append("x", [[1.0]])
        out.commit(step=1)
    before = states_of(tmp_path)
    assert [one for one in survey(subject_of(tmp_path, world=8)) if isinstance(one, Problem)]
    assert states_of(tmp_path) == before


def test_the_number_of_opened_files_does_not_grow_with_the_number_of_shards(
    tmp_path: Path, shards: Shards, events: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limits of the checks, each further shard is only listed."""
    frame = shards(5)[0].read_bytes()
    opened = []
    for count in (5_000, 10_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        for shard in range(count):
            (folder / f"train-{shard:05d}-of-{count:05d}.tfrecord").write_bytes(frame)
        events.clear()
        found = list(survey(subject_of(folder, world=8)))
        opened.append(events["open"])
        assert not [one for one in found if isinstance(one, Problem) and one.severity != "note"]
    assert opened[1] - opened[0] < 100


def test_without_paths_there_are_no_files_to_examine() -> None:
    assert list(check_files(subject_of())) == []


def test_a_library_that_cannot_be_imported_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shardkeep.diagnosis.examination.contents.survey", None)
    (one,) = check_files(subject_of(tmp_path))
    assert isinstance(one, Problem)
    assert (one.severity, "cannot be imported" in one.evidence) == ("error", True)
