"""Repairs of files in a store, and into a store."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardkeep as sk
from shardkeep.cli.app import run as cli
from shardkeep.errors import ExistsError, NotFoundError, PlanError
from shardkeep.files.remote import store
from shardkeep.files.remote.pending import spool_folder
from shardkeep.jobs.salvage import uploads
from shardkeep.jobs.salvage.outputs import check_page
from shardkeep.tfrecord import Reader, Writer
from tests.remote_memory import MEMORY

URL = "memory://data"
ORIGINAL = f"{URL}/in/a.tfrecord"


@pytest.fixture(autouse=True)
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bytes]:
    """A file of three records in the store, of which the second is damaged."""
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "cache"))
    with Writer(tmp_path / "a.tfrecord") as writer:
        for number in range(3):
            writer.write(b"record %d" % number)
    content = bytearray((tmp_path / "a.tfrecord").read_bytes())
    content[40:43] = b"!!!"
    (tmp_path / "a.tfrecord").write_bytes(content)
    MEMORY.pipe_file("/data/in/a.tfrecord", bytes(content))
    yield bytes(content)
    assert MEMORY.cat_file("/data/in/a.tfrecord") == content
    assert os.listdir(spool_folder()) == []
    MEMORY.rm("/data", recursive=True)
    store._listed.clear()


def objects() -> list[str]:
    return sorted(name.removeprefix("/data/") for name in MEMORY.find("/data"))


def test_a_file_is_repaired_from_a_store_and_into_one(tmp_path: Path) -> None:
    here = tmp_path / "a.tfrecord"
    for number, path in enumerate((here, ORIGINAL)):
        for output in (tmp_path / f"out-{number}.tfrecord", f"{URL}/out-{number}.tfrecord"):
            report = sk.repair(path, output)
            assert (report.path, report.output) == (str(path), str(output))
            assert [one.output for one in report.files] == [str(output)]
            assert list(Reader(output)) == [b"record 0", b"record 2"]
    assert objects() == ["in/a.tfrecord", "out-0.tfrecord", "out-1.tfrecord"]
    assert sk.repair(ORIGINAL, f"{URL}/dry.tfrecord", dry_run=True).output is None
    assert len(objects()) == 3


def test_the_command_shows_the_urls(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli(["repair", ORIGINAL, f"{URL}/out.tfrecord", "--html", f"{URL}/page.html"]) == 3
    shown = capsys.readouterr().out
    assert f"shardkeep verify {URL}/out.tfrecord" in shown and str(tmp_path) not in shown
    assert str(tmp_path) not in MEMORY.cat_file("/data/page.html").decode()
    assert cli(["repair", f"{URL}/in", f"{URL}/fixed", "--json"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["files"][0]["output"] == f"{URL}/fixed/a.tfrecord"


def test_the_first_commit_of_a_run_is_the_last_object(monkeypatch: pytest.MonkeyPatch) -> None:
    with sk.hdf5.WorkerFile(f"{URL}/run", sk.World()) as out:
        for step in range(3):
            out.append("x", [float(step)])
            out.commit(step=step)
        out.finish()
    name = "rank-00000/00000001-step-1.h5"
    MEMORY.pipe_file(f"/data/run/{name}", MEMORY.cat_file(f"/data/run/{name}")[:-300])
    placed: list[str] = []
    adopt = uploads.FileSet.adopt
    monkeypatch.setattr(
        uploads.FileSet,
        "adopt",
        lambda self, url, path: placed.append(url.rpartition("/")[2]) or adopt(self, url, path),
    )
    report = sk.repair(f"{URL}/run", f"{URL}/fixed/")
    assert report.output == f"{URL}/fixed"
    assert report.files[0].notes[-1].endswith(f"{URL}/fixed {URL}/fixed.h5")
    assert placed[-1] == "00000000-step-0.h5" and not placed[0].endswith(".h5")
    fixed = [one.removeprefix("fixed/") for one in objects() if one.startswith("fixed/")]
    run = [one.removeprefix("run/") for one in objects() if one.startswith("run/")]
    assert sorted(fixed) == [one for one in run if one != name and not one.endswith("owner.json")]
    with pytest.warns(RuntimeWarning, match="commit 1 of rank 0 is missing"):
        assert sk.merge(f"{URL}/fixed", f"{URL}/all.h5", incomplete="warn").rows == {"x": 2}


@pytest.mark.parametrize(
    ("path", "output"),
    [
        (ORIGINAL, ORIGINAL),
        (f"{URL}/in", f"{URL}/in"),
        (f"{URL}/in", f"{URL}/in/fixed"),
        (f"{URL}/in/", URL),
    ],
)
def test_the_original_is_no_output(path: str, output: str) -> None:
    with pytest.raises(PlanError, match="are one, or lie in one another: repair writes new files"):
        sk.repair(path, output, exists="replace")
    with pytest.raises(PlanError, match="is the damaged file, in its folder, or the output"):
        check_page(f"{path.rstrip('/')}/page", path, None)


def test_an_output_that_exists_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    MEMORY.pipe_file("/data/fixed/b", b"of another program")
    monkeypatch.delattr(sys.modules["shardkeep.jobs.repair"], "_repair")
    for path, output in ((ORIGINAL, f"{URL}/fixed/b"), (f"{URL}/in", f"{URL}/fixed")):
        with pytest.raises(ExistsError, match='allow exists="replace"'):
            sk.repair(path, output)
    with pytest.raises(PlanError, match="Shardkeep only reads them"):
        sk.repair(f"{URL}/in", "zip://fixed::memory://data/all.zip")
    with pytest.raises(NotFoundError, match=f"{URL}/none"):
        sk.repair(f"{URL}/none", f"{URL}/out")
