"""The output of a repair is never the original."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardkeep.errors import ExistsError, NotFoundError, PlanError
from shardkeep.jobs.salvage.outputs import check_file, check_folder, check_page, refuse_originals


@pytest.fixture
def original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "in/a.tfrecord"
    path.parent.mkdir()
    path.write_bytes(b"damaged")
    return path


def test_the_file_itself_is_refused_under_every_name(original: Path) -> None:
    os.link(original, "hard")
    os.symlink(original, "link")
    os.symlink("link", "link-to-link")
    for name in ("in/a.tfrecord", "in/../in/a.tfrecord", str(original), "hard", "link", "link-to-link"):
        for exists in ("fail", "replace"):
            with pytest.raises(PlanError, match="is the damaged file itself"):
                check_file("in/a.tfrecord", name, exists)  # type: ignore[arg-type]
            with pytest.raises(PlanError, match="is the damaged file itself"):
                check_page(name, "in/a.tfrecord", None)


def test_an_output_that_cannot_be_written_is_refused_before_the_work(original: Path) -> None:
    Path("there").touch()
    os.symlink("nowhere", "dangling")
    os.mkfifo("pipe")
    for name in ("there", "dangling"):
        with pytest.raises(ExistsError, match="exists"):
            check_file(str(original), name, "fail")
        check_file(str(original), name, "replace")
    for name, what in (("in", "a folder"), ("pipe", "a named pipe"), ("/dev/null", "a device")):
        with pytest.raises(ExistsError, match=what):
            check_file(str(original), name, "replace")
    with pytest.raises(NotFoundError, match="there is no folder 'gone'"):
        check_file(str(original), "gone/out", "fail")
    check_file(str(original), "new", "fail")


def test_folders_must_not_lie_in_one_another(original: Path) -> None:
    os.symlink("in", "link")
    for output in ("in", "in/", "in/new", "./in/../in/x/y", "link", "link/new"):
        with pytest.raises(PlanError, match=r"damaged folder itself|lie in one another"):
            check_folder("in", output, "replace")
    with pytest.raises(PlanError, match="lie in one another"):
        check_folder("in", ".", "replace")
    check_folder("in", "in2", "fail")


def test_an_output_folder_must_be_new_or_empty(original: Path) -> None:
    Path("empty").mkdir()
    Path("full").mkdir()
    Path("full/x").touch()
    check_folder("in", "empty", "fail")
    with pytest.raises(ExistsError, match="is not empty"):
        check_folder("in", "full", "fail")
    check_folder("in", "full", "replace")
    with pytest.raises(ExistsError, match="not a folder"):
        check_folder("in", "full/x", "replace")
    with pytest.raises(NotFoundError, match="there is no folder 'gone'"):
        check_folder("in", "gone/out/", "fail")


def test_a_name_in_the_output_that_leads_to_an_original_is_refused(original: Path) -> None:
    Path("out").mkdir()
    os.symlink(original, "out/link")
    os.link(original, "out/hard")
    os.symlink("../in", "out/folder")
    for name in ("link", "hard", "folder/new"):
        with pytest.raises(PlanError, match=r"itself|leads into the damaged folder"):
            refuse_originals([str(original)], [f"out/{name}"], folder="in")
    refuse_originals([str(original)], ["out/new"], folder="in")


def test_the_page_is_neither_an_original_nor_the_new_file(original: Path) -> None:
    with pytest.raises(PlanError, match="leads into the damaged folder"):
        check_page("in/page.html", "in", "out")
    with pytest.raises(PlanError, match="is the output, too"):
        check_page("./new", str(original), "new")
    with pytest.raises(NotFoundError):
        check_page("gone/page.html", str(original), "new")
    Path("page.html").touch()
    check_page("page.html", str(original), "new")
    check_page("memory://reports/page.html", str(original), "new")
    with pytest.raises(PlanError, match="cannot be written whole"):
        check_page("zip://page.html::all.zip", str(original), "new")
