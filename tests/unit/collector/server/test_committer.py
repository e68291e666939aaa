"""When the rows that came are committed."""

import numpy as np
import pytest

from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.server import committer
from shardkeep.collector.server.committer import Committer
from shardkeep.collector.server.events import Events
from shardkeep.collector.store.client_table import ClientEntry


@pytest.fixture
def disk(tmp_path, monkeypatch):
    monkeypatch.setattr(committer, "_COMMIT_EVERY_S", 1e6)
    monkeypatch.setattr(committer, "_WANTED_WITHIN_S", 1e6)
    settings = Settings(str(tmp_path / "all.h5"), "", durability="flush", memory_bytes=16 << 20)
    disk = Committer(settings, Events(None))
    disk.store.declare(Schema("x", np.dtype("<i8"), (), 1024))
    yield disk
    disk.close()


def _take(disk, sequence, size=8):
    entry = ClientEntry(b"c" * 16, 0, 1)
    entry.sequence = sequence
    disk.store.clients.update(entry)
    disk.note(entry)
    disk.count(1, size)


def test_rows_wait_until_a_commit_is_wanted_and_longer_while_more_come(disk):
    _take(disk, 1)
    assert disk.work(hurry=False) == {}
    disk.hurry(waits=False)
    assert disk.wait_s() == 0
    assert disk.work(hurry=False, more=True) == {}
    _take(disk, 2)
    assert disk.work(hurry=False, more=True) == {}
    assert disk.work(hurry=False) == {b"c" * 16: 2}
    _take(disk, 3)
    assert disk.work(hurry=False) == {}, "it is wanted once"


def test_who_waits_is_not_kept_waiting_by_more(disk):
    _take(disk, 1)
    disk.hurry(waits=False)
    disk.hurry()
    assert disk.work(hurry=False, more=True) == {b"c" * 16: 1}


def test_what_is_only_wanted_comes_in_time_and_before_there_is_too_much(disk, monkeypatch):
    _take(disk, 1, size=1 << 20)
    disk.hurry(waits=False)
    assert disk.work(hurry=False, more=True) == {b"c" * 16: 1}
    _take(disk, 2)
    disk.hurry(waits=False)
    monkeypatch.setattr(committer, "_WANTED_WITHIN_S", 0)
    assert disk.work(hurry=False, more=True) == {b"c" * 16: 2}
