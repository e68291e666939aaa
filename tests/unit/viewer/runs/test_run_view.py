"""The state of a run folder.

Covers `shardkeep.viewer.runs.collectors` and `shardkeep.viewer.runs.ranks`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np

from shardkeep import World
from shardkeep.diagnosis import DoctorReport
from shardkeep.hdf5 import Collector, WorkerFile, connect
from shardkeep.viewer.locations import Roots
from shardkeep.viewer.runs import commit_records, run_view
from tests.waiting import eventually

WRITER = """
import sys
import numpy as np
from shardkeep import World
from shardkeep.hdf5 import WorkerFile
with WorkerFile(sys.argv[1], World(rank=1, size=2)) as worker:
    for step, line in enumerate(sys.stdin):
        worker.append("loss", np.zeros(5))
        worker.commit(step=step)
        print("committed", flush=True)
"""


def commit(folder, rank: int, steps: int) -> None:
    with WorkerFile(folder, World(rank=rank, size=2)) as worker:
        for step in range(steps):
            worker.append("loss", np.zeros(3))
            worker.commit(step=step)


def test_the_commits_of_a_run_are_shown_while_a_process_writes(shown, page, tmp_path, monkeypatch):
    monkeypatch.setattr(run_view, "_READ_S", 60.0)
    commit(tmp_path, 0, 4)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        for number in range(1, 4):
            writer.stdin.write("\n")
            writer.stdin.flush()
            writer.stdout.readline()
            status, text = shown("0?view=run&part=live")
            assert status == 200
            assert f"{4 + number} commits" in text and f"{12 + 5 * number} rows of loss" in text
        assert f"pid {writer.pid} on" in text and "2 ranks, 1 being written" in text
        assert re.search(r"0 4 3 \d+ s ago [\d.,]+ \S+ KiB loss: 12 none", text)
        curve = page().get("0?view=run&part=curve").json()
        assert [one["name"] for one in curve["series"]] == ["rank 0", "rank 1"]
        assert [one for one in curve["series"][1]["values"] if one is not None] == [0, 1, 2]
        writer.stdin.close()
    assert writer.returncode == 0
    assert "0 being written" in shown("0?view=run&part=live")[1]


def test_a_damaged_segment_and_a_missing_one_do_not_hide_the_others(shown, tmp_path, monkeypatch):
    monkeypatch.setattr(run_view, "_READ_S", 60.0)
    commit(tmp_path, 0, 3)
    commit(tmp_path, 1, 3)
    (tmp_path / "rank-00001" / "00000002-step-2.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(1000))
    os.unlink(tmp_path / "rank-00000" / "00000001-step-1.h5")
    status, text = shown("0?view=run")
    assert status == 200 and "loss: 9" in text and "cannot" in text


def test_a_segment_that_is_a_link_to_elsewhere_is_not_read(page, tmp_path, monkeypatch):
    monkeypatch.setattr(run_view, "_READ_S", 60.0)
    commit(tmp_path / "other", 0, 1)
    root = tmp_path / "root"
    (root / "rank-00000").mkdir(parents=True)
    (root / "rank-00001").symlink_to(tmp_path / "other" / "rank-00000")
    (root / "rank-00000" / "00000000-step-0.h5").symlink_to(
        tmp_path / "other" / "rank-00000" / "00000000-step-0.h5"
    )
    text = page(root).get("0?view=run").text
    assert "loss" not in text and "a link to a file elsewhere" in text


def test_a_collector_is_shown_with_its_clients(shown, tmp_path):
    with Collector(tmp_path / "all.h5") as collector, connect(collector.address) as client:
        client.append("loss", np.zeros(7))
        client.flush()
        eventually(lambda: "Rows 7 in the file" in shown("0?view=run&part=live")[1], pause_s=0.5)
        status, text = shown("0?view=run")
        assert status == 200 and "Collector of all.h5" in text and "Clients 1; 1 may send more" in text
        assert "0 1 1 7 may send more" in text and "not in the file yet" in text and "killed" not in text
        client.close()
        eventually(lambda: "0 1 1 7 has left" in shown("0?view=run&part=live")[1], pause_s=0.5)
    assert "Collector" not in shown("0?view=files")[1]


def test_a_folder_without_commits_has_a_page(shown, tmp_path):
    (tmp_path / "rank-00000").mkdir()
    assert "0 commits" in shown("0?view=run")[1]
    (tmp_path / "rank-0000").mkdir()
    status, text = shown("0?view=run")
    assert status == 422 and "rename it" in text


def test_the_doctor_is_asked_only_when_a_person_wants_it(shown, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        run_view, "doctor", lambda paths: asked.append(paths) or DoctorReport((), (), ("run",))
    )
    run_view._reports.clear()
    (tmp_path / "rank-00000").mkdir()
    assert "Examine this folder" in shown("0?view=run")[1] and not asked
    assert "The doctor finds no problem." in shown("0?view=run&doctor=1")[1]
    assert "1 check in" in shown("0?view=run&part=doctor")[1]
    assert asked == [[str(tmp_path)]]
    run_view._reports.clear()


def test_another_request_may_forget_the_commit_records(tmp_path, monkeypatch):
    class Forgotten(dict):
        """Records that another thread clears after each look-up."""

        def __contains__(self, key):
            found = super().__contains__(key)
            self.clear()
            return found

    monkeypatch.setattr(commit_records, "_known", Forgotten())
    commit(tmp_path, 0, 1)
    (segment,) = (tmp_path / "rank-00000").glob("*.h5")
    location = Roots([str(segment)], "/t").locations()[0]
    records = [commit_records.record_at(location) for _ in range(2)]
    assert records[0] == records[1] and records[0].step == 0
