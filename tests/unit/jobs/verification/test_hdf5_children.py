"""HDF5 files that end the process which reads them.

Covers `shardkeep.jobs.verification.hdf5_child`.
"""

from __future__ import annotations

import signal
from pathlib import Path

import h5py
import pytest

from shardkeep.files import child_python
from shardkeep.jobs import verify


def test_a_file_that_crashes_hdf5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.h5", "b.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            file["x"] = [1]
    code = "import os,sys\nsys.stdin.readline()\nos.kill(os.getpid(), 11)"
    original = child_python.subprocess.Popen
    started = []

    def popen(arguments, **options):
        started.append(1)
        return original([arguments[0], "-c", code] if len(started) == 1 else arguments, **options)

    monkeypatch.setattr(child_python.subprocess, "Popen", popen)
    one, two = verify([tmp_path / "a.h5", tmp_path / "b.h5"], threads=1).files
    assert signal.SIGSEGV.name in one.findings[0].message and "malformed" in one.findings[0].message
    assert two.findings == ()


def test_a_file_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1]
    monkeypatch.setattr(child_python, "_SILENT_S", 0.2)
    original = child_python.subprocess.Popen
    monkeypatch.setattr(
        child_python.subprocess,
        "Popen",
        lambda arguments, **options: original([arguments[0], "-c", "import time; time.sleep(60)"], **options),
    )
    (one,) = verify(tmp_path / "a.h5").files
    assert "did not finish reading" in one.findings[0].message
