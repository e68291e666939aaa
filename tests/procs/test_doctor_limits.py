"""The command `doctor` under limits of its shell, and without h5py."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S


def doctor(*options: str, limits: Callable[[], None] | None = None, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "shardkeep", "doctor", *options, "--json"],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        preexec_fn=limits,
        timeout=PATIENCE_S,
    )
    assert done.returncode in (0, 3), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode == 0) == report["ok"]
    return report


def test_64_descriptors_are_an_error(tmp_path: Path) -> None:
    report = doctor(str(tmp_path), limits=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    (problem,) = [one for one in report["problems"] if one["check"] == "descriptors"]
    assert problem["severity"] == "error" and "64 files open" in problem["evidence"]
    assert {"check": "descriptors", "name": "hard limit of a process", "value": "64"} in report["facts"]


def test_a_limit_of_the_file_size_is_a_warning(tmp_path: Path) -> None:
    report = doctor(
        str(tmp_path), limits=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 22, 1 << 22))
    )
    assert any("size of a file is limited to 4.0 MiB" in one["evidence"] for one in report["problems"])


def test_a_machine_without_h5py_is_examined(tmp_path: Path) -> None:
    (tmp_path / "h5py.py").write_text("raise ModuleNotFoundError(\"No module named 'h5py'\")")
    folder = tmp_path / "data"
    folder.mkdir()
    report = doctor(str(folder), PYTHONPATH=str(tmp_path))
    assert {"check": "HDF5", "name": "version", "value": "h5py is not installed"} in report["facts"]
    assert any(one["name"].endswith("mmap is shared") for one in report["facts"])


def test_ranks_of_a_launcher_are_examined(tmp_path: Path) -> None:
    names = {"RANK": "0", "WORLD_SIZE": "16", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "8"}
    report = doctor(str(tmp_path), **names)
    assert (report["ranks"], report["ranks_here"]) == (16, 8)
