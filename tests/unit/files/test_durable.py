from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from shardkeep.errors import DurabilityError, ExistsError
from shardkeep.files.durable import durability_error, durably, read_all, sync_folder, write_all


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:3], offset))
    path = tmp_path / "a"
    path.write_bytes(b"01")
    with open(path, "r+b") as file:
        write_all(file.fileno(), b"abcdefgh", 2)
        write_all(file.fileno(), b"", 100)
    assert path.read_bytes() == b"01abcdefgh"


def test_short_reads_are_continued_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, offset: real(fd, [views[0][:3]], offset))
    path = tmp_path / "a"
    path.write_bytes(b"01abcdefgh")
    with open(path, "rb") as file:
        whole, beyond = bytearray(7), bytearray(9)
        assert (read_all(file.fileno(), whole, 2), whole) == (7, b"abcdefg")
        assert (read_all(file.fileno(), beyond, 5), beyond) == (5, b"defgh" + bytes(4))


def test_folder_of_a_bare_name_is_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd)))
    monkeypatch.chdir(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    sync_folder(os.path.dirname("a"))
    assert [os.path.samestat(one, tmp_path.stat()) for one in synced] == [True]
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(FileNotFoundError):
        sync_folder(str(tmp_path / "missing"))


def test_errors_of_the_system_become_durability_errors_with_advice() -> None:
    expected = pytest.raises(DurabilityError, match=r"cannot write 'a\.h5': .* \(ENOSPC\); free space")
    with expected as caught, durably("write", "a.h5"):
        raise OSError(errno.ENOSPC, "full")
    assert (caught.value.errno, caught.value.path) == (errno.ENOSPC, "a.h5")
    unknown = durability_error("sync", "a.h5", OSError("no number"))
    assert "no number" in str(unknown) and unknown.errno is None


def test_typed_errors_of_the_body_are_not_converted() -> None:
    with pytest.raises(ExistsError), durably("write", "a.h5"):
        raise ExistsError("there already", path="b.h5")
