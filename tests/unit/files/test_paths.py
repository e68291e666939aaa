from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardkeep.collector.client import spill
from shardkeep.collector.protocol import address_file
from shardkeep.errors import NotFoundError, PlanError
from shardkeep.files.leftovers import find_companion, temporary_name
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.paths import expand
from shardkeep.hdf5.journal.paths import log_path, readers_path
from shardkeep.tfrecord.index.store import index_paths


def test_sidecars_are_not_data_files(tmp_path: Path) -> None:
    for name in ("train-0", "train-0.skidx", "train-1", "train-1.lock"):
        (tmp_path / name).touch()
    assert expand(f"{tmp_path}/train*") == [f"{tmp_path}/train-0", f"{tmp_path}/train-1"]
    assert expand(f"{tmp_path}/*.skidx") == [f"{tmp_path}/train-0.skidx"]
    assert expand(tmp_path / "train-0.skidx") == [f"{tmp_path}/train-0.skidx"]
    with pytest.raises(NotFoundError):
        expand(f"{tmp_path}/*.sk*x*")


@pytest.fixture
def aliased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of several names, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a"
    path.write_bytes(b"content")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "far").symlink_to("../a")
    (tmp_path / "link").symlink_to("a")
    os.link(path, tmp_path / "hard")
    (tmp_path / "other-folder").symlink_to(".")
    (tmp_path / "copy").write_bytes(b"content")
    return path


@pytest.mark.parametrize(
    "name",
    ["a", "./a", ".//a", "folder/../a", "link", "hard", "folder/far", "other-folder/a", "[a]*", "hard*"],
)
@pytest.mark.parametrize("first", [True, False])
def test_one_file_of_two_names_is_refused(aliased: Path, name: str, first: bool) -> None:
    paths = [str(aliased), name] if first else [name, str(aliased)]
    with pytest.raises(PlanError, match="named twice: its contents would be read twice"):
        expand(paths)


def test_a_pattern_that_matches_a_file_and_a_link_to_it_is_refused(aliased: Path) -> None:
    with pytest.raises(PlanError, match="'link' and 'a' are one file"):
        expand("[al]*")
    with pytest.raises(PlanError, match="'a' is named twice"):
        expand(["a", "copy", "a"])


def test_equal_contents_are_not_one_file(aliased: Path) -> None:
    assert expand(["a", "copy"]) == ["a", "copy"]


def test_names_of_one_empty_file_are_not_refused(tmp_path: Path) -> None:
    """A store that keeps equal contents once links all empty shards to one file."""
    (tmp_path / "blob").touch()
    for name in ("t-0", "t-1"):
        (tmp_path / name).symlink_to("blob")
    assert len(expand(f"{tmp_path}/t-*")) == 2


def test_paths_that_do_not_exist_are_compared_by_name(tmp_path: Path) -> None:
    assert expand([tmp_path / "x", tmp_path / "y"]) == [f"{tmp_path}/x", f"{tmp_path}/y"]
    with pytest.raises(PlanError, match="twice"):
        expand([tmp_path / "x", tmp_path / "x"])


def test_a_mount_without_numbers_of_files(aliased: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.stat

    def unnumbered(path: str, **options: object) -> os.stat_result:
        values = list(original(path, **options))  # type: ignore[call-overload]
        values[1] = 0
        return os.stat_result(values)

    monkeypatch.setattr(os, "stat", unnumbered)
    assert expand(["a", "copy"]) == ["a", "copy"]
    with pytest.raises(PlanError, match="one file"):
        expand(["a", "link"])


def test_files_that_shardkeep_puts_next_to_data_are_companions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_INDEX", "beside")
    names = [
        next(index_paths("a")),
        FileLock("a").lock_path,
        log_path("a"),
        readers_path("a"),
        address_file._path("a"),
        f"a{spill._SUFFIX}",
        temporary_name("a"),
    ]
    assert [name for name in names if find_companion(name) is None] == []
