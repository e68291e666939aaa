"""Tests of the locking mode; values of the variable: tests/procs/test_open_processes.py."""

from __future__ import annotations

import pytest

from shardkeep.hdf5.locking import mode
from tests.descriptors import few_descriptors


@pytest.mark.parametrize("left", [0, 3])
def test_a_mode_that_could_not_be_found_is_not_kept(left, monkeypatch):
    monkeypatch.setattr(mode, "_found", [])
    monkeypatch.delenv(mode.VARIABLE, raising=False)
    with few_descriptors(left):
        assert mode.locking_mode() == mode.LockingMode("asked", None, False)
        assert mode._found == (["asked"] if left else [])
    assert mode.locking_mode() == mode.LockingMode("asked", None, False)
