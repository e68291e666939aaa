from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkeep.errors import DurabilityError
from shardkeep.files import writeback
from shardkeep.files.temporary_file import TemporaryFile
from shardkeep.files.writeback import Writeback


@pytest.fixture
def file(tmp_path: Path) -> Iterator[TemporaryFile]:
    fd = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    one = TemporaryFile(fd, str(tmp_path / "a"), "a")
    yield one
    one.release()


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "shardkeep-writeback"]


def test_writeback_starts_after_many_bytes(file: TemporaryFile, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    before = threads()
    monkeypatch.setattr(writeback, "_STEP_BYTES", 10)
    monkeypatch.setattr(writeback, "_sync_file_range", lambda: lambda *arguments: started.append(arguments))
    with Writeback(file, "a") as early:
        file.write(b"123456789")
        early.wrote()
        assert threads() == before
        file.write(b"0")
        early.wrote()
        early.wait()
    assert started == [(file.fileno(), 0, 0, 2)]
    assert threads() == before


def test_error_of_the_early_sync_is_raised_by_wait(
    file: TemporaryFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "fsync", fail)
    with Writeback(file, "final.h5") as early:
        early.sync()
        with pytest.raises(DurabilityError, match=r"cannot sync 'final\.h5'") as caught:
            early.wait()
        assert caught.value.errno == errno.EIO


def test_failed_file_is_not_synced(file: TemporaryFile, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    file.deferred = True
    file.fail(OSError(errno.ENOSPC, "full"))
    with Writeback(file, "a") as early:
        early.sync()
        early.wait()
    assert synced == []
