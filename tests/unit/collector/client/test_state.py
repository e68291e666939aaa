"""The state of a client: its guard, its waiters, and the room for more rows."""

import threading

import numpy as np
import pytest

from shardkeep.collector.client.buffers import DatasetBuffer, Payload
from shardkeep.collector.client.outbox import Outbox
from shardkeep.collector.client.state import ReentrancyGuard, SenderState
from shardkeep.collector.protocol.schema import Schema
from shardkeep.errors import CollectorError, LockError
from tests.waiting import PATIENCE_S


class _Connection:
    address = "ipc:///nowhere"

    def __init__(self):
        self.wakes = 0

    def wake(self):
        self.wakes += 1


@pytest.fixture
def state():
    return SenderState(0, 1.0, Outbox(1 << 20), _Connection())


def test_a_guard_refuses_a_second_entry_of_its_thread_and_is_free_afterwards():
    guard = ReentrancyGuard(3)
    with pytest.raises(LockError, match="client of rank 3 is in the middle of another call"):
        guard.run(guard.run, len, "")
    assert not guard.is_interrupted()
    assert guard.run(len, "ab") == 2


def test_a_guard_lets_another_thread_wait():
    guard, entered, may_end = ReentrancyGuard(0), threading.Event(), threading.Event()
    first = threading.Thread(target=guard.run, args=(lambda: entered.set() or may_end.wait(PATIENCE_S),))
    first.start()
    entered.wait()
    order = []
    second = threading.Thread(target=guard.run, args=(order.append, "second"))
    second.start()
    order.append("first")
    may_end.set()
    first.join()
    second.join()
    assert order == ["first", "second"]


def test_notify_wakes_each_waiter_once(state):
    waiters = [state.new_waiter() for _ in range(2)]
    assert not waiters[0].acquire(blocking=False)
    state.notify()
    assert all(one.acquire(blocking=False) for one in waiters)
    assert not waiters[0].acquire(blocking=False)


@pytest.mark.parametrize("is_made", [False, True])
def test_what_a_flush_sends_after_a_declaration_is_not_reported_as_lost(state, capsys, is_made):
    marker = Payload("loss", 0, np.empty(0, np.uint8))
    if is_made:
        state.outbox.add_all([marker])
    else:
        state.submitted.append(marker)
    assert state.undelivered() == {} and state.outbox.has_undelivered == is_made
    state.report_losses()
    assert capsys.readouterr().err == ""
    state.submitted.append(Payload("config", 0, np.empty(1, np.uint8), is_value=True))
    assert state.undelivered() == {"config": 0}


def test_a_chunk_is_submitted_once_and_counts_as_undelivered(state):
    dataset = DatasetBuffer(Schema("x", np.dtype("f8"), (), 64))
    dataset.chunk = dataset.new_chunk(None)
    state.mark_dirty(dataset)
    dataset.chunk.array[:2] = 1.0
    dataset.chunk.rows = 2
    assert state.undelivered() == {"x": 2}
    for _ in range(2):
        state.submit(dataset)
    assert state.submitted == [dataset.chunk]
    assert state.submitted_bytes == 16
    assert state._connection.wakes > 0


def test_the_first_error_closes_the_client(state):
    first, second = CollectorError("first"), CollectorError("second")
    state.fail(first)
    state.close(second)
    assert (state.failure, state.closed_error) == (first, first)
    assert state.has_notice
