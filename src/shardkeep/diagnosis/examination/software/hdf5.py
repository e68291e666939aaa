"""Check of the HDF5 library: whether it can be loaded, locks files, and is there once."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files

from packaging.version import Version

from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.errors import one_line
from shardkeep.files.child_python import child_python

__all__ = ["examine_hdf5", "load_hdf5"]

_CHECK = "HDF5"
_VARIABLE = "HDF5_USE_FILE_LOCKING"
_CHILD = "shardkeep.diagnosis.examination.software.hdf5_child"
_KNOWN = ("", "TRUE", "1", "FALSE", "0", "BEST_EFFORT")
_POLL_S = 0.1
# Distributions whose wheels have their own copy of the library.
_WITH_COPY = ("h5py", "netCDF4", "tables")
_COPY = re.compile(r"(?:^|/)libhdf5[-.][^/]*")
_INSTALL = "python -m pip install -U h5py"


def load_hdf5(subject: Subject) -> dict[str, str]:
    """Load HDF5 in a child process.

    Returns
    -------
    dict of str to str
        "h5py" and "hdf5", the versions, and "effect", the locking mode; or "error"; empty if the time was
        too short.
    """
    child = subprocess.Popen(
        child_python(_CHILD, "describe()"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with child:
        while subject.left_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                data, _ = child.communicate(timeout=_POLL_S)
                break
        else:
            child.kill()
            return {}
    if child.returncode < 0:
        return {"error": f"the process ended by {signal.Signals(-child.returncode).name}"}
    if child.returncode != 0:
        return {"error": f"exit code {child.returncode}"}
    # Libraries may have written lines before it.
    found: dict[str, str] = json.loads(data.splitlines()[-1])
    return found


def examine_hdf5(found: dict[str, str], subject: Subject) -> Iterator[Problem | Fact]:
    """Yield the version of HDF5, how it locks files, and how often it is installed."""
    if "error" in found:
        yield from _not_loaded(one_line(found["error"])[:300])
    elif found:
        yield Fact(_CHECK, "version", f"{found['hdf5']} in h5py {found['h5py']}")
        yield from _locking(found, subject)
    yield from _variables(subject)
    yield from _copies()


def _not_loaded(error: str) -> Iterator[Problem | Fact]:
    if error.startswith("ModuleNotFoundError: No module named 'h5py'"):
        yield Fact(_CHECK, "version", "h5py is not installed")
        return
    fix = "install h5py and NumPy from one source, and unset LD_LIBRARY_PATH"
    yield Problem("error", _CHECK, f"h5py cannot be loaded: {error}", fix, _INSTALL)


def _locking(found: dict[str, str], subject: Subject) -> Iterator[Problem | Fact]:
    value = subject.environment.get(_VARIABLE)
    effects = {
        "asked": "locks files unless a program asks otherwise",
        "on": "always locks",
        "off": "never locks",
    }
    yield Fact(_CHECK, _VARIABLE, f"{'not set' if value is None else value}: HDF5 {effects[found['effect']]}")
    is_old = Version(found["hdf5"]) < Version("1.10.7") and value == "BEST_EFFORT"
    if value is not None and (value not in _KNOWN or is_old):
        yield Problem(
            "warning",
            _CHECK,
            f"{_VARIABLE}={value!r} is not a value that HDF5 {found['hdf5']} knows: it is ignored",
            "use TRUE, FALSE or BEST_EFFORT, in capital letters, before the program starts",
            f"unset {_VARIABLE}",
        )
    elif found["effect"] == "off":
        yield Problem(
            "warning",
            _CHECK,
            f"{_VARIABLE}={value} switches the locks of HDF5 off: two writers of one file destroy it",
            "unset it where the file system has locks; else write one file per process (hdf5.WorkerFile)",
            f"unset {_VARIABLE}",
        )


def _variables(subject: Subject) -> Iterator[Problem | Fact]:
    if subject.environment.get("HDF5_DISABLE_VERSION_CHECK", "0") not in ("", "0"):
        yield Problem(
            "warning",
            _CHECK,
            "HDF5_DISABLE_VERSION_CHECK is set: a program that was compiled for another HDF5 can damage"
            " files without a message",
            "install h5py, netCDF4 and tables from one source, and unset it",
            "unset HDF5_DISABLE_VERSION_CHECK",
        )


def _copies() -> Iterator[Problem | Fact]:
    """Yield the copies of the library that come with packages; two of them in one process can conflict."""
    copies: dict[str, str] = {}
    for name in _WITH_COPY:
        with contextlib.suppress(PackageNotFoundError):
            found = [one for path in files(name) or () if (one := _COPY.search(path.as_posix()))]
            if found:
                copies[name] = found[0][0].lstrip("/")
    if copies:
        text = ", ".join(f"{library} ({name})" for name, library in copies.items())
        yield Fact(_CHECK, "copies of the library", text)
    if len(set(copies.values())) > 1:
        yield Problem(
            "note",
            _CHECK,
            f"{' and '.join(copies)} each bring an HDF5 library: a process that imports several can fail"
            " with NetCDF: HDF error (Unidata/netcdf4-python#694, h5py/h5py#2453)",
            "install them from conda-forge, where they share one library, or import one of them per process",
            "python -m pip list | grep -iE 'h5py|netcdf4|tables'",
        )
