from __future__ import annotations

import errno
from pathlib import Path

import pytest

from shardkeep.demo.folder import claim, machine_errors
from shardkeep.errors import DurabilityError, ExistsError, LockTimeoutError, NotFoundError


def test_makes_the_folder_and_its_parents(tmp_path: Path) -> None:
    with claim(tmp_path / "a/b") as layout:
        assert layout.data.is_dir()
        assert layout.run.is_dir()
        assert layout.marker.is_file()


def test_takes_an_empty_folder(tmp_path: Path) -> None:
    with claim(tmp_path):
        pass
    assert (tmp_path / "run").is_dir()


def test_refuses_a_folder_with_other_things(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ExistsError, match="--output") as caught, claim(tmp_path):
        pass
    assert "\n" not in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(ExistsError, match="not a folder"), claim(tmp_path / "out"):
        pass
    assert (tmp_path / "out").read_text() == "a file"


def test_its_own_earlier_folder_is_emptied_of_what_a_demo_writes(tmp_path: Path) -> None:
    with claim(tmp_path) as layout:
        (layout.data / "train-00000-of-00008.tfrecord").write_bytes(b"old")
        for file in (layout.checkpoint, layout.results, layout.report, layout.summary):
            file.write_bytes(b"old")
        (tmp_path / "notes.txt").write_text("mine")
    with claim(tmp_path) as layout:
        assert list(layout.data.iterdir()) == []
        for file in (layout.checkpoint, layout.results, layout.report, layout.summary):
            assert not file.exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_link_in_place_of_a_folder_is_removed_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("keep")
    with claim(tmp_path / "out") as layout:
        layout.data.rmdir()
        layout.data.symlink_to(elsewhere)
    with claim(tmp_path / "out") as layout:
        assert not layout.data.is_symlink()
    assert (elsewhere / "precious").read_text() == "keep"


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with claim(tmp_path) as layout:
        (layout.data / "shard").write_bytes(b"in use")
        with pytest.raises(LockTimeoutError), claim(tmp_path):
            pass
        assert (layout.data / "shard").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DurabilityError, match="--output"), claim(tmp_path / "file" / "out"):
        pass


def test_what_could_not_be_used_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "marker")

    monkeypatch.setattr("shardkeep.files.publish", full)
    with pytest.raises(DurabilityError, match="make room"), claim(tmp_path / "a/b"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_tree_pass_through() -> None:
    with pytest.raises(NotFoundError), machine_errors("here"):
        raise NotFoundError("it is not there")
