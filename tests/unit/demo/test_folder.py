from __future__ import annotations

import errno
from pathlib import Path

import pytest

from shardkeep.demo.folder import reserved_folder
from shardkeep.errors import DurabilityError, ExistsError, LockTimeoutError, NotFoundError


def test_folder_and_its_parents_are_created(tmp_path: Path) -> None:
    with reserved_folder(tmp_path / "a/b") as layout:
        assert layout.data.is_dir()
        assert layout.run.is_dir()
        assert layout.marker.is_file()


def test_empty_folder_is_accepted(tmp_path: Path) -> None:
    with reserved_folder(tmp_path):
        pass
    assert (tmp_path / "run").is_dir()


def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ExistsError, match="--output") as caught, reserved_folder(tmp_path):
        pass
    assert "\n" not in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(ExistsError, match="not a folder"), reserved_folder(tmp_path / "out"):
        pass
    assert (tmp_path / "out").read_text() == "a file"


def test_folder_of_an_earlier_demo_loses_only_files_of_the_demo(tmp_path: Path) -> None:
    with reserved_folder(tmp_path) as layout:
        (layout.data / "train-00000-of-00008.tfrecord").write_bytes(b"old")
        for file in (layout.checkpoint, layout.results, layout.report, layout.summary):
            file.write_bytes(b"old")
        (tmp_path / "notes.txt").write_text("mine")
    with reserved_folder(tmp_path) as layout:
        assert list(layout.data.iterdir()) == []
        for file in (layout.checkpoint, layout.results, layout.report, layout.summary):
            assert not file.exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_symbolic_link_in_place_of_a_folder_is_removed_and_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("keep")
    with reserved_folder(tmp_path / "out") as layout:
        layout.data.rmdir()
        layout.data.symlink_to(elsewhere)
    with reserved_folder(tmp_path / "out") as layout:
        assert not layout.data.is_symlink()
    assert (elsewhere / "precious").read_text() == "keep"


def test_second_demo_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with reserved_folder(tmp_path) as layout:
        (layout.data / "shard").write_bytes(b"in use")
        with pytest.raises(LockTimeoutError), reserved_folder(tmp_path):
            pass
        assert (layout.data / "shard").exists()


def test_folder_that_cannot_be_created_is_a_durability_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DurabilityError, match="ENOTDIR"), reserved_folder(tmp_path / "file" / "out"):
        pass


def test_created_folders_are_removed_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "marker")

    monkeypatch.setattr("shardkeep.files.publish", full)
    with pytest.raises(DurabilityError, match="free space"), reserved_folder(tmp_path / "a/b"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["run/rank-00000", None])
def test_error_of_the_system_in_the_body_is_one_line_with_its_path(tmp_path: Path, path: str | None) -> None:
    with pytest.raises(DurabilityError) as caught, reserved_folder(tmp_path):
        raise OSError(errno.EMFILE, "Too many open files", path)
    assert caught.value.path == (path or str(tmp_path))
    assert "raise the limit of open files" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_error_of_shardkeep_in_the_body_is_not_converted(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError), reserved_folder(tmp_path):
        raise NotFoundError("it is not there")
