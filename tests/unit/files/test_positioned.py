"""Signals that arrive while HDF5 is at work."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.files.temporary_file import TemporaryFile


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[int]]]:
    """Return a function that has the n-th write of HDF5 interrupted, and returns a list of the writes."""

    def arm(number: int) -> list[int]:
        calls: list[int] = []
        write = TemporaryFile.write

        def interrupted(self: TemporaryFile, data: object) -> int:
            calls.append(1)
            if len(calls) == number:
                signal.raise_signal(signal.SIGINT)
            return write(self, data)

        monkeypatch.setattr(TemporaryFile, "write", interrupted)
        return calls

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield arm
    signal.signal(signal.SIGINT, before)


def commit(out: sk.hdf5.WorkerFile, step: int) -> None:
    out.append("x", np.arange(1000.0) + step)
    out.append("word", ["one", "two"])
    out.commit(step=step)


@pytest.mark.parametrize("number", range(1, 22, 3))
def test_an_interrupted_merge_leaves_nothing(
    number: int, interrupt: Callable[[int], list[int]], tmp_path: Path
) -> None:
    for rank in range(2):
        with sk.hdf5.WorkerFile(tmp_path / "run", sk.World(rank, 2)) as out:
            commit(out, 0)
            commit(out, 1)
    sk.merge(tmp_path / "run", tmp_path / "first.h5")  # imports modules; Python drops an interrupt there
    calls = interrupt(number)
    with pytest.raises(KeyboardInterrupt):
        sk.merge(tmp_path / "run", tmp_path / "all.h5")
    assert len(calls) >= number
    assert sorted(os.listdir(tmp_path)) == ["first.h5", "run"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupted_commit_is_an_interrupt(
    interrupt: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(1, 100):
        folder = tmp_path / str(number)
        with sk.hdf5.WorkerFile(folder, sk.World(0, 1)) as out:
            commit(out, 0)
            calls = interrupt(number)
            with contextlib.suppress(KeyboardInterrupt):
                commit(out, 1)
            monkeypatch.undo()
        if len(calls) < number:
            break
        assert os.listdir(folder / "rank-00000") == ["00000000-step-0.h5"]
    assert number > 10
