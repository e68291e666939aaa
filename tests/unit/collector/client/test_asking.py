"""Declarations on their way: none is sent that ZeroMQ might drop, and no row before them."""

import numpy as np
import pytest

from shardkeep.collector.client.asking import Asking
from shardkeep.collector.client.tray import Request, Tray
from shardkeep.collector.protocol.messages import unpack
from shardkeep.collector.protocol.schema import Schema
from shardkeep.errors import SchemaError


class _Connection:
    """Keeps what is sent."""

    address = "ipc:///nowhere"

    def __init__(self):
        self.sent = []
        self.is_full = False

    def send(self, frames):
        if not self.is_full:
            message = unpack(frames)
            self.sent.append((message.value, message.json()["name"], message.parts))
        return not self.is_full


@pytest.fixture
def connection():
    return _Connection()


@pytest.fixture
def tray():
    return Tray(0, 1.0, lambda: None, {})


def _schema(name, dtype="f8"):
    return Schema(str(name), np.dtype(dtype), (), 64)


def test_some_at_a_time_and_rows_behind_them(tray, connection):
    asking = Asking(tray, connection)
    requests = [Request(_schema(number)) for number in range(600)]
    tray.requests.extend(requests)
    answered = 0
    while not asking.send():
        assert len(connection.sent) - answered == 256
        number, name, _ = connection.sent[answered]
        asking.declared(number, _schema(name, "f4"))
        answered += 1
    assert [name for _, name, _ in connection.sent] == [str(number) for number in range(600)]
    assert asking.is_waiting
    for number, name, _ in connection.sent[answered:]:
        asking.declared(number, _schema(name, "f4"))
    assert not asking.is_waiting
    # A pen is there as soon as the answer is: the connection may be lost before the call goes on.
    assert all(one.pen is tray.pens[one.schema.name] for one in requests)
    assert {one.pen.schema.dtype for one in requests} == {np.dtype("f4")}


def test_all_again_on_a_new_connection(tray, connection):
    asking = Asking(tray, connection)
    tray.requests.extend([Request(_schema("a")), Request(_schema("b")), Request(_schema("c"))])
    asking.send()
    asking.declared(1, _schema("a"))
    asking.refused(2, SchemaError("no"))
    asking.begin_anew()
    connection.is_full = True
    assert not asking.send()
    connection.is_full = False
    assert asking.send()
    asking.begin_anew()
    assert asking.send()
    assert connection.sent[3:] == [(4, "a", 1), (5, "c", 0), (6, "a", 1), (7, "c", 0)]
    asking.declared(4, _schema("a", "i8"))  # of the connection before
    assert not tray.trouble
    asking.declared(6, _schema("a", "i8"))
    (error,) = tray.trouble
    assert isinstance(error, SchemaError)
    assert "int64 rows of shape (), while float64 rows" in str(error)
