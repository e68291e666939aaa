"""When received rows are committed."""

import numpy as np
import pytest

from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.server import committer as committer_module
from shardkeep.collector.server.committer import Committer
from shardkeep.collector.server.events import Events
from shardkeep.collector.store.client_table import ClientEntry


@pytest.fixture
def committer(tmp_path, monkeypatch):
    monkeypatch.setattr(committer_module, "_COMMIT_EVERY_S", 1e6)
    monkeypatch.setattr(committer_module, "_REQUESTED_WITHIN_S", 1e6)
    settings = Settings(str(tmp_path / "all.h5"), "", durability="flush", memory_bytes=16 << 20)
    committer = Committer(settings, Events(None))
    committer.store.declare(Schema("x", np.dtype("<i8"), (), 1024))
    yield committer
    committer.close()


def _receive(committer, sequence, size=8):
    entry = ClientEntry(b"c" * 16, 0, 1)
    entry.sequence = sequence
    committer.store.clients.update(entry)
    committer.mark_changed(entry)
    committer.count(1, size)


def _work(committer, *, more=False):
    return committer.work(is_draining=False, more=more)


def test_rows_wait_for_a_request_and_then_until_no_more_come(committer):
    _receive(committer, 1)
    assert _work(committer) == {}
    committer.request_commit(waits=False)
    assert committer.idle_s() == 0
    assert _work(committer, more=True) == {}
    _receive(committer, 2)
    assert _work(committer, more=True) == {}
    assert _work(committer) == {b"c" * 16: 2}
    _receive(committer, 3)
    assert _work(committer) == {}, "one request is one commit"


def test_a_waiting_client_does_not_wait_for_more_rows(committer):
    _receive(committer, 1)
    committer.request_commit(waits=False)
    committer.request_commit()
    assert _work(committer, more=True) == {b"c" * 16: 1}


def test_a_request_without_waiting_is_bounded_in_time_and_bytes(committer, monkeypatch):
    _receive(committer, 1, size=1 << 20)
    committer.request_commit(waits=False)
    assert _work(committer, more=True) == {b"c" * 16: 1}
    _receive(committer, 2)
    committer.request_commit(waits=False)
    monkeypatch.setattr(committer_module, "_REQUESTED_WITHIN_S", 0)
    assert _work(committer, more=True) == {b"c" * 16: 2}


def test_a_kept_error_refers_to_no_frame(committer):
    try:
        try:
            raise OSError("no space")
        except OSError as cause:
            raise ValueError("not stored") from cause
    except ValueError as error:
        kept = committer_module._without_frames(error)
    assert (kept.__traceback__, kept.__cause__.__traceback__) == (None, None)
