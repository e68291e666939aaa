"""Names and status of files."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkeep.diagnosis.examination.contents.listing import list_files, plain_path
from shardkeep.files.leftovers import temporary_name

Shards = Callable[..., list[Path]]
SurveyOf = Callable[..., Any]


def test_folders_are_listed_with_their_sub_folders(shards: Shards, tmp_path: Path) -> None:
    shards(1, 1)
    (tmp_path / "data" / "more").mkdir()
    (tmp_path / "data" / "more" / "x").write_bytes(b"x")
    (tmp_path / "data" / ".git").mkdir()
    (tmp_path / "data" / ".git" / "y").write_bytes(b"y")
    found = list_files([str(tmp_path)], until_s=math.inf)
    assert [entry.name for entry in found.files] == [
        "x",
        "train-00000-of-00002.tfrecord",
        "train-00001-of-00002.tfrecord",
    ]
    assert found.folders == {f"{tmp_path}": 1, f"{tmp_path}/data": 4, f"{tmp_path}/data/more": 1}


def test_companions_of_a_named_file_are_found(shards: Shards) -> None:
    paths = shards(1, 1)
    wanted = [f"{paths[0].name}.skidx", f"{paths[0].name}.lock", f"{paths[0].stem}.idx", "x"]
    wanted[3] = temporary_name(paths[0].name)
    for name in [*wanted, f"{paths[1].name}.skidx", "other.lock"]:
        (paths[0].parent / name).write_bytes(b"")
    found = list_files([str(paths[0])], until_s=math.inf)
    assert [entry.path for entry in found.files] == [str(paths[0])]
    assert sorted(entry.name for entry in found.companions) == sorted(wanted)


def test_paths_are_relative_as_they_were_passed(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards(1)
    (tmp_path / "rank-00000").mkdir()
    monkeypatch.chdir(tmp_path)
    found = list_files(["."], until_s=math.inf)
    assert [entry.path for entry in found.files] == ["data/train-00000-of-00001.tfrecord"]
    assert found.runs == ["."]


def test_two_dots_after_a_link_are_kept(shards: Shards, tmp_path: Path) -> None:
    paths = shards(1)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "link").symlink_to(tmp_path / "data")
    assert plain_path(f"{tmp_path}/more/link/../data") == f"{tmp_path}/more/link/../data"
    assert plain_path(f"{tmp_path}/more/.././data//") == f"{tmp_path}/data"
    found = list_files([f"{tmp_path}/more/link/../data/{paths[0].name}"], until_s=math.inf)
    assert len(found.files) == 1


def test_links_are_followed_to_files_only(shards: Shards, tmp_path: Path) -> None:
    paths = shards(1, 1)
    os.symlink(paths[0], tmp_path / "data" / "link")
    os.symlink("nowhere", tmp_path / "data" / "broken")
    os.symlink(tmp_path, tmp_path / "data" / "loop")
    os.mkfifo(tmp_path / "data" / "pipe")
    found = list_files([str(tmp_path)], until_s=math.inf)
    assert [(entry.name, entry.is_link) for entry in found.files if entry.is_link] == [("link", True)]
    assert found.broken == [(f"{tmp_path}/data/broken", "nowhere")]
    assert f"{tmp_path}/data/loop" not in found.folders
    assert len(found.files) == 3


def test_a_listing_that_takes_too_long_is_incomplete(shards: Shards, tmp_path: Path) -> None:
    shards(1, 1)
    found = list_files([str(tmp_path)], until_s=time.monotonic() - 1)
    assert not found.is_complete
    assert found.files == []
