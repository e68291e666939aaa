"""HDF5 as it is loaded, its locks, and its copies.

Covers `shardkeep.diagnosis.examination.software.hdf5_child`.
"""

from __future__ import annotations

import sys
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path, PurePosixPath

import pytest

from shardkeep.diagnosis.examination.report import Problem
from shardkeep.diagnosis.examination.software import hdf5
from shardkeep.diagnosis.examination.software.hdf5 import examine_hdf5, load_hdf5
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.world import World
from tests.described_machine import DescribedMachine


def subject(**environment: str) -> Subject:
    return Subject((), (".",), World(), environment)


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> dict[str, str]:
    """Load an h5py that is a module with `source`."""
    (folder / "h5py.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return load_hdf5(subject())


def test_the_library_of_the_tests_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HDF5_USE_FILE_LOCKING", raising=False)
    found = load_hdf5(subject())
    assert found["effect"] == "asked" and found["hdf5"][0].isdigit()
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "FALSE")
    assert load_hdf5(subject())["effect"] == "off"


def test_a_missing_h5py_is_a_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load(tmp_path, monkeypatch, "raise ModuleNotFoundError(\"No module named 'h5py'\")")
    problems, facts = DescribedMachine(tmp_path).examine(lambda subject: examine_hdf5(found, subject))
    assert problems == [] and facts["version"] == "h5py is not installed"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise ImportError('numpy.dtype size changed')", "ImportError: numpy.dtype size changed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
        ("import os; os._exit(7)", "exit code 7"),
    ],
)
def test_an_h5py_that_cannot_be_loaded_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, words: str
) -> None:
    found = load(tmp_path, monkeypatch, source)
    (problem,), _ = DescribedMachine(tmp_path).examine(lambda subject: examine_hdf5(found, subject))
    assert problem.severity == "error" and words in problem.evidence


def test_an_h5py_that_hangs_ends_with_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "h5py.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    short = Subject((), (".",), World(), {}, deadline_s=time.monotonic() + 0.5)
    assert load_hdf5(short) == {}


LOADED = {"h5py": "3.16.0", "hdf5": "2.0.0", "effect": "asked"}


def judged(effect: str, hdf5_version: str = "2.0.0", **environment: str) -> list[Problem]:
    found = LOADED | {"effect": effect, "hdf5": hdf5_version}
    return [one for one in examine_hdf5(found, subject(**environment)) if isinstance(one, Problem)]


def test_default_locks_are_healthy() -> None:
    assert judged("asked") == []
    assert judged("on", HDF5_USE_FILE_LOCKING="TRUE") == []
    assert judged("asked", HDF5_USE_FILE_LOCKING="BEST_EFFORT") == []


def test_locks_that_are_off_are_a_warning() -> None:
    (problem,) = judged("off", HDF5_USE_FILE_LOCKING="FALSE")
    assert problem.severity == "warning" and "switches the locks of HDF5 off" in problem.evidence


@pytest.mark.parametrize("value", ["false", "no", "best_effort"])
def test_a_value_that_hdf5_ignores_is_a_warning(value: str) -> None:
    (problem,) = judged("asked", HDF5_USE_FILE_LOCKING=value)
    assert f"HDF5_USE_FILE_LOCKING={value!r} is not a value" in problem.evidence


def test_best_effort_is_not_known_to_old_versions() -> None:
    (problem,) = judged("asked", "1.10.4", HDF5_USE_FILE_LOCKING="BEST_EFFORT")
    assert "not a value that HDF5 1.10.4 knows" in problem.evidence


def test_a_version_check_that_is_off_is_a_warning() -> None:
    (problem,) = judged("asked", HDF5_DISABLE_VERSION_CHECK="2")
    assert problem.command == "unset HDF5_DISABLE_VERSION_CHECK"


def test_two_copies_of_the_library_are_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "h5py": ["h5py/h5.py", "h5py.libs/libhdf5-9e18f0c6.so.320.0.0"],
        "netCDF4": ["netcdf4.libs/libhdf5-1d7b7a2d.so.310.5.1"],
    }

    def files(name: str) -> list[PurePosixPath]:
        if name not in known:
            raise PackageNotFoundError(name)
        return [PurePosixPath(path) for path in known[name]]

    monkeypatch.setattr(hdf5, "files", files)
    (problem,) = judged("asked")
    assert problem.severity == "note" and problem.evidence.startswith("h5py and netCDF4 each bring")
    known["netCDF4"] = ["netCDF4/_netCDF4.so"]
    assert judged("asked") == []


def test_no_process_is_left() -> None:
    before = _children()
    load_hdf5(subject())
    assert _children() <= before


def _children() -> set[str]:
    tasks = Path("/proc/self/task").glob("*/children")
    return {child for task in tasks for child in task.read_text().split()}
