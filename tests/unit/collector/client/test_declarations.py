"""Declarations: none is sent that ZeroMQ might drop, and no row before them.

Covers `shardkeep.collector.client.outbox` and `shardkeep.collector.client.state`.
"""

import h5py
import numpy as np
import pytest

from shardkeep.collector.client.declarations import DeclarationQueue, make_schema
from shardkeep.collector.client.outbox import Outbox
from shardkeep.collector.client.state import Declaration, SenderState
from shardkeep.collector.protocol.messages import unpack
from shardkeep.collector.protocol.schema import Schema
from shardkeep.errors import PlanError, SchemaError


class _Connection:
    """Keeps what is sent."""

    address = "ipc:///nowhere"

    def __init__(self):
        self.sent = []
        self.is_full = False

    def wake(self):
        pass

    def send(self, frames):
        if not self.is_full:
            message = unpack(frames)
            self.sent.append((message.value, message.json()["name"], message.parts))
        return not self.is_full


@pytest.fixture
def connection():
    return _Connection()


@pytest.fixture
def state(connection):
    return SenderState(0, 1.0, Outbox(1 << 20), connection)


def _schema(name, dtype="f8"):
    return Schema(str(name), np.dtype(dtype), (), 64)


def test_at_most_256_declarations_are_unanswered_and_rows_wait_for_all(state, connection):
    queue = DeclarationQueue(state, connection)
    declarations = [Declaration(_schema(number)) for number in range(600)]
    state.declarations.extend(declarations)
    answered = 0
    while not queue.send():
        assert len(connection.sent) - answered == 256
        number, name, _ = connection.sent[answered]
        queue.accept(number, _schema(name, "f4"))
        answered += 1
    assert [name for _, name, _ in connection.sent] == [str(number) for number in range(600)]
    assert queue.is_pending
    for number, name, _ in connection.sent[answered:]:
        queue.accept(number, _schema(name, "f4"))
    assert not queue.is_pending
    # The answer makes the buffer: the connection may be lost before the call continues.
    assert all(one.dataset is state.datasets[one.schema.name] for one in declarations)
    assert {one.dataset.schema.dtype for one in declarations} == {np.dtype("f4")}


def test_every_dataset_is_declared_again_on_a_new_connection(state, connection):
    queue = DeclarationQueue(state, connection)
    state.declarations.extend(
        [Declaration(_schema("a")), Declaration(_schema("b")), Declaration(_schema("c"))]
    )
    queue.send()
    queue.accept(1, _schema("a"))
    queue.reject(2, SchemaError("no"))
    queue.restart()
    connection.is_full = True
    assert not queue.send()
    connection.is_full = False
    assert queue.send()
    queue.restart()
    assert queue.send()
    assert connection.sent[3:] == [(4, "a", 1), (5, "c", 0), (6, "a", 1), (7, "c", 0)]
    queue.accept(4, _schema("a", "i8"))  # of the connection before
    assert not state.errors
    queue.accept(6, _schema("a", "i8"))
    (error,) = state.errors
    assert isinstance(error, SchemaError)
    assert "int64 rows of shape (), while float64 rows" in str(error)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"row_shape": (2.5,)}, SchemaError, "is not a shape: pass a tuple"),
        ({"row_shape": 3}, SchemaError, "is not a shape: pass a tuple"),
        ({"row_shape": (-1,)}, SchemaError, "negative"),
        ({"row_shape": (1 << 32,)}, SchemaError, "longer than the 4 GiB"),
        ({"dtype": np.dtype(("f4", (2,)))}, SchemaError, "row_shape="),
        ({"dtype": h5py.vlen_dtype("i4")}, SchemaError, "variable length"),
        ({"rows": -1}, SchemaError, "rows must be an int of at least 0"),
        ({"rows": True}, SchemaError, "rows must be an int of at least 0"),
        ({"chunk_rows": 0}, PlanError, "chunk_rows must be an int of at least 1"),
        ({"compression_level": 3}, PlanError, "pass compression= too"),
    ],
)
def test_an_invalid_declaration_is_refused(values, error, message):
    options = {"dtype": "f4", "row_shape": (), "rows": None, "chunk_rows": None}
    options |= {"compression": None, "compression_level": None, "shuffle": None}
    with pytest.raises(error, match=message):
        make_schema("x", **{**options, **values})
