"""Folders that belong together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardkeep.plan import Dataset
from shardkeep.viewer.locations import Location, Roots
from shardkeep.viewer.nearby import folder_of_shards, is_run, location_of_shard, runs_below


def _roots(*paths: Path) -> list[Location]:
    return Roots([str(path) for path in paths], "/token").locations()


def _parts(found: Location | None) -> tuple[str, ...] | None:
    return None if found is None else found.parts


def test_runs_are_found_at_and_below_the_roots(tmp_path):
    for name in ("a/run/rank-00000", "b/c/d/e/f/rank-00000", "elsewhere/rank-00000"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file.json").write_text("{}")
    found = runs_below(_roots(tmp_path / "a", tmp_path / "b", tmp_path / "file.json"))
    assert [(one.number, one.parts) for one in found] == [(0, ("run",))]
    assert is_run(str(tmp_path / "a" / "run")) and not is_run(str(tmp_path / "a"))


def test_shards_are_found_by_name_and_size(tmp_path):
    (tmp_path / "data" / "part").mkdir(parents=True)
    for number, name in enumerate(("x/0", "part/0", "part/1")):
        os.makedirs((tmp_path / "data" / name).parent, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(bytes(number + 1))
    roots = _roots(tmp_path)
    assert _parts(folder_of_shards(roots, Dataset("f", 2, ("part/0", "part/1"), (1, 1), (2, 3)))) == ("data",)
    assert _parts(folder_of_shards(roots, Dataset("f", 2, ("0", "1"), (1, 1)))) == ("data", "part")
    assert folder_of_shards(roots, Dataset("f", 2, ("0", "1"), (1, 1), (2, 4))) is None
    assert folder_of_shards(roots, Dataset("f", 2)) is None


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "link/secret", "a/../../secret"])
def test_a_name_that_leads_out_has_no_location(tmp_path, name):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("")
    (root / "link").symlink_to(tmp_path)
    assert location_of_shard(_roots(root)[0], name) is None
