"""Errors as the installed libraries really raise them, each with the cause that must be found.

Covers `shardkeep.diagnosis.explanation.search`.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import resource
import socket
import sqlite3
import subprocess
import sys
import tarfile
import traceback
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.diagnosis import explain
from tests.waiting import PATIENCE_S


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("empty").touch()
    Path("page").write_bytes(b"<html>" * 1_000)
    np.save("a.npy", np.arange(1_000))
    with h5py.File("a.h5", "w") as file:
        file["x"] = np.arange(1_000)
        file.create_dataset("z", data=np.arange(1_000), chunks=(1_000,), compression="gzip")
    return tmp_path


def cause(failing: Callable[[], object]) -> list[str]:
    try:
        failing()
    except Exception:
        return [one.name for one in explain(traceback.format_exc())]
    pytest.fail("nothing was raised")


def copy(data: bytes, name: str = "copy") -> str:
    Path(name).write_bytes(data)
    return name


def changed(path: str, position: int, new: bytes) -> str:
    data = Path(path).read_bytes()
    return copy(data[:position] + new + data[position + len(new) :])


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def out_of_descriptors(opener: Callable[[str], object]) -> None:
    with no_descriptor_left():
        opener("a.h5")


def lost_descriptor() -> None:
    descriptor = os.open("a.npy", os.O_RDONLY)
    os.close(descriptor)
    os.read(descriptor, 1)


def closed_dataset() -> None:
    with h5py.File("a.h5") as file:
        dataset = file["x"]
    dataset[...]


def name_twice() -> None:
    with h5py.File("b.h5", "w") as file:
        file["x"] = 1
        file.create_dataset("x", data=1)


def flagged_copy() -> str:
    with h5py.File("f.h5", "w", libver="latest") as file:
        file["x"] = 1
        file.flush()
        return copy(Path("f.h5").read_bytes())


def damaged_chunk() -> None:
    with h5py.File("a.h5") as file:
        place = file["z"].id.get_chunk_info(0)
    with h5py.File(changed("a.h5", place.byte_offset + 10, b"\xff" * 20)) as file:
        file["z"][...]


def half_tar() -> None:
    with tarfile.open("a.tar", "w") as tar:
        tar.add("a.npy")
        tar.add("a.h5")
    with tarfile.open(copy(Path("a.tar").read_bytes()[:15_000])) as tar:
        tar.extractall("out", filter="data")


def not_tar() -> None:
    with tarfile.open("page"):
        pass


def pickled_file() -> None:
    with open("a.npy", "rb") as file:
        pickle.dumps(file)


def locked_database() -> None:
    first, second = sqlite3.connect("s.db"), sqlite3.connect("s.db", timeout=0.05)
    try:
        first.execute("begin exclusive")
        second.execute("create table t(x)")
    finally:
        first.close()
        second.close()


def dead_pool() -> None:
    with ProcessPoolExecutor(1) as pool:
        pool.submit(os._exit, 1).result()


def npz_without_end() -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.arange(1_000))
    np.load(copy(buffer.getvalue()[:1_000]))


def changed_gzip() -> None:
    data = bytearray(gzip.compress(bytes(1_000)))
    data[-6] ^= 1
    gzip.decompress(bytes(data))


ERRORS: dict[str, tuple[str, Callable[[], object]]] = {
    "missing HDF5": ("hdf5/no-such-file", lambda: h5py.File("no.h5")),
    "HDF5 exists": ("hdf5/file-exists", lambda: h5py.File("a.h5", "x")),
    "HDF5 folder": ("hdf5/folder", lambda: h5py.File(".", "w")),
    "HDF5 page": ("hdf5/not-hdf5", lambda: h5py.File("page")),
    "HDF5 empty": ("hdf5/not-hdf5", lambda: h5py.File("empty")),
    "HDF5 truncated": ("hdf5/truncated", lambda: h5py.File(copy(Path("a.h5").read_bytes()[:3_000]))),
    "HDF5 damaged": ("hdf5/metadata-damaged", lambda: h5py.File(changed("a.h5", 136, b"X" * 8))["x"]),
    "HDF5 version": ("hdf5/bad-superblock", lambda: h5py.File(changed("a.h5", 8, b"\x09"))),
    "HDF5 chunk": ("hdf5/chunk-damaged", damaged_chunk),
    "HDF5 flagged": ("hdf5/open-for-writing-flag", lambda: h5py.File(flagged_copy())),
    "HDF5 not SWMR": ("hdf5/not-swmr", lambda: h5py.File(flagged_copy(), swmr=True)),
    "HDF5 closed": ("hdf5/closed-file", closed_dataset),
    "HDF5 name": ("hdf5/name-exists", name_twice),
    "HDF5 no object": ("hdf5/no-such-object", lambda: h5py.File("a.h5")["loss"]),
    "HDF5 pickled": ("hdf5/pickle", lambda: pickle.dumps(h5py.File("a.h5"))),
    "HDF5 with MPI": ("hdf5/no-mpi", lambda: h5py.File("m.h5", "w", driver="mpio")),
    "HDF5 descriptors": ("hdf5/too-many-open-files", lambda: out_of_descriptors(h5py.File)),
    "descriptors": ("system/too-many-open-files", lambda: out_of_descriptors(open)),
    "closed descriptor": ("system/bad-descriptor", lost_descriptor),
    "folder exists": ("system/mkdir-race", lambda: Path(".").mkdir()),
    "missing file": ("system/no-such-file", lambda: Path("no").read_bytes()),
    "long socket": ("system/socket-path", lambda: socket.socket(socket.AF_UNIX).bind("x" * 200)),
    "locked database": ("system/sqlite-locked", locked_database),
    "not gzip": ("system/gzip", lambda: gzip.decompress(b"<html>")),
    "changed gzip": ("system/gzip", changed_gzip),
    "not zlib": ("system/gzip", lambda: zlib.decompress(b"hello world")),
    "half gzip": ("system/gzip-truncated", lambda: gzip.decompress(gzip.compress(os.urandom(99))[:60])),
    "empty pickle": ("checkpoints/empty-pickle", lambda: pickle.loads(b"")),
    "half pickle": ("checkpoints/truncated-pickle", lambda: pickle.loads(pickle.dumps(b"x" * 99)[:60])),
    "pickle of a page": ("checkpoints/load-key", lambda: pickle.loads(b"<html>")),
    "half npz": ("checkpoints/npz", npz_without_end),
    "half npy": ("checkpoints/npy", lambda: np.load(copy(Path("a.npy").read_bytes()[:999]))),
    "half tar": ("checkpoints/tar", half_tar),
    "no tar": ("checkpoints/tar", not_tar),
    "dead pool": ("processes/broken-pool", dead_pool),
    "pickled function": ("torch/pickle-local", lambda: pickle.dumps(lambda: 1)),
    "pickled file": ("torch/pickle-local", pickled_file),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_an_installed_library_has_its_cause(name: str, folder: Path) -> None:
    expected, failing = ERRORS[name]
    assert cause(failing) == [expected]


def test_a_file_that_another_process_holds(folder: Path) -> None:
    code = "import h5py, sys; f = h5py.File('a.h5', 'a'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdout.readline()
        assert cause(lambda: h5py.File("a.h5")) == ["hdf5/locked"]
        other.stdin.close()
        other.wait(PATIENCE_S)


def test_a_spawned_child_that_imports_an_unguarded_program(folder: Path) -> None:
    Path("main.py").write_text(
        "import multiprocessing as m\nm.set_start_method('spawn', True)\nm.Process(target=print).start()\n"
    )
    done = subprocess.run(
        [sys.executable, "main.py"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert [one.name for one in explain(done.stderr)] == ["processes/bootstrapping"]
