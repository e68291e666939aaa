"""HDF5 files that end the process which reads them, and files that other processes write.

Covers `shardkeep.viewer.hdf5.child.opening` and `shardkeep.viewer.hdf5.child.values`.
"""

from __future__ import annotations

import subprocess
import sys

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5 import Collector, connect
from shardkeep.viewer.hdf5 import processes
from shardkeep.viewer.hdf5.child.opening import find, open_file
from shardkeep.viewer.hdf5.child.values import Values
from shardkeep.viewer.locations import Roots
from tests.waiting import eventually

WRITER = """
import h5py, sys
with h5py.File(sys.argv[1], "a") as file:
    file["y"] = [2]
    file.flush()
    print("writing", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("import os; os.kill(os.getpid(), 11)", "crashed at this file (SIGSEGV)"),
        (
            "import signal\nsignal.setitimer(signal.ITIMER_PROF, 0.01)\nwhile True: pass",
            "did not finish reading this in time",
        ),
    ],
)
def test_a_file_that_ends_the_child(shown, file, monkeypatch, code, wanted):
    file["x"] = [1]
    file.close()
    children = processes.Children("")
    monkeypatch.setattr(
        children,
        "_take",
        lambda: subprocess.Popen(
            [sys.executable, "-c", f"input()\n{code}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ),
    )
    with monkeypatch.context() as patch:
        patch.setattr(processes, "children", lambda: children)
        status, text = shown("0/a.h5")
    assert status == 422 and wanted in text and "shardkeep verify" in text and "shardkeep repair" in text
    assert shown("0/a.h5")[0] == 200


def test_the_commands_for_a_file_that_ends_the_child_are_quoted(tmp_path, monkeypatch):
    class Dead:
        def ask(self, question):
            return {"died": -11}

    monkeypatch.setattr(processes, "children", Dead)
    location = Roots([str(tmp_path)], "/t").locations()[0].child("a b.h5")
    with pytest.raises(CorruptDataError, match=r"repair '\S+/a b.h5' '\S+/a b.repaired.h5'` if"):
        processes.ask(location, "/", "rows")


def test_a_damaged_file_has_a_page(shown, file, tmp_path):
    file.create_dataset("x", data=np.arange(100), chunks=(10,))
    file.close()
    content = bytearray((tmp_path / "a.h5").read_bytes())
    at = content.index(b"TREE")
    content[at : at + 200] = b"\xff" * 200
    (tmp_path / "a.h5").write_bytes(content)
    status, text = shown("0/a.h5")
    assert status == 422 and "damaged" in text


def test_values_that_take_too_much_memory_are_refused(shown, file):
    file.create_dataset("x", (1,), np.dtype(("f8", (100_000_000,))))
    file.close()
    status, text = shown("0/a.h5?at=/x")
    assert status == 200 and "more memory than the page may use" in text
    assert shown("0/a.h5")[0] == 200


def test_links_and_rows_that_lead_out_of_the_root_are_not_followed(shown, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["data"] = np.full(10, 4242)
    with h5py.File(root / "near.h5", "w") as file:
        file["data"] = np.full(10, 1717)
        file["way_out"] = h5py.ExternalLink("../secret.h5", "/data")
    (root / "symlink.h5").symlink_to(tmp_path / "secret.h5")
    (tmp_path / "secret.txt").write_bytes(b"4242" * 10)
    with h5py.File(root / "a.h5", "w") as file:
        file["out"] = h5py.ExternalLink("../secret.h5", "/data")
        file["by_symlink"] = h5py.ExternalLink("symlink.h5", "/data")
        file["near"] = h5py.ExternalLink("near.h5", "/data")
        file.create_dataset("raw", (4,), "S4", external=[(str(tmp_path / "secret.txt"), 0, 16)])
        for name, source, inside in [
            ("v_out", "../secret.h5", "data"),
            ("v_symlink", "symlink.h5", "data"),
            ("v_absolute", str(tmp_path / "secret.h5"), "data"),
            ("v_chain", "near.h5", "way_out"),
            ("v_near", "near.h5", "data"),
        ]:
            layout = h5py.VirtualLayout((2, 10), "i8")
            layout[1] = h5py.VirtualSource(source, inside, (10,))
            file.create_virtual_dataset(name, layout, fillvalue=-1)
    text = shown("0/a.h5", root)[1]
    assert text.count("not followed") == 2 and "4242" not in text
    for name in ("out", "by_symlink", "near"):
        status, text = shown(f"0/a.h5?at=/{name}", root)
        assert status == 403 and "link to another file" in text
    for name in ("raw", "v_out", "v_symlink", "v_absolute", "v_chain"):
        for form in ("rows", "plot", "image"):
            status, text = shown(f"0/a.h5?at=/{name}&show={form}", root)
            assert "4242" not in text
        assert "not read" in text or "outside of" in text or "not followed" in text
    assert "1 1717 1717" in shown("0/a.h5?at=/v_near", root)[1]


def test_sources_of_virtual_datasets_are_placed_as_hdf5_does(tmp_path):
    for number in range(3):
        with h5py.File(tmp_path / f"s{number}.h5", "w") as file:
            file["data"] = np.arange(60).reshape(4, 15) + 1000 * number
            file["wide"] = np.arange(12) + 1000 * number
    layout, stacked = h5py.VirtualLayout((8, 20), "i8"), h5py.VirtualLayout((3, 12), "i8")
    for number in range(2):
        layout[number * 4 : number * 4 + 4, :10] = h5py.VirtualSource(f"s{number}.h5", "data", (4, 15))[
            :, 5:15
        ]
    for number in range(3):
        stacked[number] = h5py.VirtualSource(f"s{number}.h5", "wide", (12,))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_virtual_dataset("x", layout, fillvalue=7)
        file.create_virtual_dataset("y", stacked)
    with h5py.File(tmp_path / "a.h5") as file:
        wanted = {name: file[name][()] for name in "xy"}
    with open_file(str(tmp_path / "a.h5"), str(tmp_path)) as opened:
        for name, all_values in wanted.items():
            values = Values(opened, find(opened, name), name)
            for rows, columns in [
                (slice(0, 3, 1), slice(0, 12, 1)),
                (slice(1, 3, 1), slice(3, 11, 2)),
                (slice(0, 3, 2), slice(1, 12, 5)),
                (slice(2, 3, 1), slice(0, 1, 1)),
            ]:
                np.testing.assert_array_equal(values.read(rows, columns), all_values[rows, columns])


def test_a_file_that_another_process_writes_is_shown_when_it_is_closed(shown, file, tmp_path):
    file["x"] = [1]
    file.close()
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "a.h5")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None and writer.stdin is not None
        assert writer.stdout.readline()
        status, text = shown("0/a.h5")
        assert status == 423 and f"pid {writer.pid}" in text
        writer.stdin.close()
    assert writer.returncode == 0
    assert "y dataset 1" in shown("0/a.h5")[1]


def test_the_file_of_a_collector_is_shown_while_it_is_written(shown, tmp_path):
    with Collector(tmp_path / "a.h5") as collector:
        with connect(collector.address) as client:
            client.append("loss", np.arange(5.0))
            client.flush()
            # The collector applies rows to the file about once a second, between two requests.
            eventually(lambda: "loss dataset 5" in shown("0/a.h5")[1], pause_s=0.5)
            assert "A collector writes this file now." in shown("0/a.h5")[1]
        assert "0 0.0 1 1.0" in shown("0/a.h5?at=/loss")[1]
    assert "A collector" not in shown("0/a.h5")[1]
