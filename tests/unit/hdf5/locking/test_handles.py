from __future__ import annotations

import fcntl
import os
from pathlib import Path

import h5py

from shardkeep.hdf5.locking.handles import (
    close_without_writing,
    descriptor_of,
    exempt,
    is_exempt,
    redirect_to_memory,
)


def test_exemption_ends_with_the_outermost_body() -> None:
    with exempt():
        with exempt():
            assert is_exempt()
        assert is_exempt()
    assert not is_exempt()


def test_descriptor_is_marked_close_on_exec(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        fd = descriptor_of(file.id)
        assert fd is not None
        assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        assert descriptor_of(file.id) is None


def test_redirected_descriptor_writes_to_memory(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")
    fd = os.open(path, os.O_RDWR)
    redirect_to_memory(fd)
    os.pwrite(fd, b"after!", 0)
    os.close(fd)
    assert path.read_bytes() == b"before"


def test_closing_without_writing_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    file = h5py.File(path, "w")
    file["x"] = [1]
    written = path.read_bytes()
    close_without_writing(file.id, descriptor_of(file.id), writes=True)
    assert not file
    assert path.read_bytes() == written
    h5py.File(path, "w").close()
    assert path.read_bytes() != written  # a normal close writes
