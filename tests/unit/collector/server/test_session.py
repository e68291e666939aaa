"""Connected clients: which ones are waited for, and which rows they may send."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from shardkeep.collector.protocol.messages import Kind, pack, unpack
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.server.session import DeclaredDatasets, Session, Sessions, parse_hello
from shardkeep.collector.store.client_table import ClientEntry
from shardkeep.collector.store.store import Store
from shardkeep.errors import CollectorError, SchemaError
from shardkeep.files.owner import this_process

MEMORY = 16 << 20
HELLO = {"id": "ab" * 16, "rank": 0, "world_size": 2, "pid": 1, "host": "node7"}


def _session(**owner):
    hello = {**HELLO, "owner": {**dataclasses.asdict(this_process()), **owner}}
    return Session(b"", ClientEntry(bytes(16), 0, 1), "rank 0", 0, owner=parse_hello(hello)[-1], seen=100.0)


@pytest.fixture(scope="module")
def dead():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_an_ended_process_of_this_host_is_not_waited_for(dead):
    assert _session(pid=dead).is_silent(102.0)
    assert not _session(pid=dead).is_silent(100.5)
    assert not _session().is_silent(102.0)
    assert _session().is_silent(111.0)
    assert _session(start_ticks=this_process().start_ticks + 1).is_silent(102.0)  # its number is another's


def test_the_pid_of_another_host_or_container_is_not_checked_here(dead):
    """Containers may share the name of their host; a pid of another one is unknown here."""
    for other in ({"namespace": "another"}, {"boot": "another"}, {"host": "another"}):
        assert not _session(pid=dead, **other).is_silent(102.0)
    unknown = parse_hello({**HELLO, "pid": dead, "host": os.uname().nodename})[-1]
    assert unknown is None


def test_a_client_is_not_silent_while_messages_wait(dead):
    """Its own may be among them: a slow collector with many clients must not drop the clients that wait."""
    assert not _session().is_silent(200.0, more=True)
    assert _session(pid=dead).is_silent(200.0, more=True)


class _Checked(Session):
    checks = 0

    def is_silent(self, now, *, more=False):
        type(self).checks += 1
        return now > self.seen + 10


def _many(count):
    sessions = Sessions()
    for number in range(count):
        identity = number.to_bytes(16, "big")
        sessions.add(_Checked(identity[-4:], ClientEntry(identity, number, count), "", 0, seen=100.0))
    return sessions


def test_each_client_is_checked_once_a_second_and_a_part_of_them_in_each_step():
    sessions = _many(1000)
    steps, _Checked.checks = 0, 0
    while steps < 300:
        before = _Checked.checks
        assert sessions.silent(101.0 + steps / 100, more=False) == []
        assert _Checked.checks - before < 500
        steps += 1
    assert _Checked.checks == 3000


def test_silent_clients_are_found_once_they_are_removed_no_more():
    sessions = _many(3)
    first, second, _ = sessions
    sessions.remove(second)
    first.seen = 105.0
    (found,) = sessions.silent(111.0, more=False)
    assert found.entry.rank == 2
    sessions.remove(found)
    assert sessions.silent(114.0, more=False) == []
    assert list(sessions) == [first]
    assert sessions.silent(117.0, more=False) == [first]


def test_only_clients_that_changed_are_considered():
    sessions = _many(1000)
    first, second, *_ = sessions
    for one in (second, first, second):
        sessions.mark_changed(one)
    sessions.remove(first)
    assert sessions.take_changed() == [second, second]
    assert sessions.take_changed() == []


@pytest.mark.parametrize("owner", [{}, {"pid": "x"}, {"host": 1, "boot": 1, "namespace": 1, "pid": None}])
def test_an_owner_of_wrong_types_is_refused(owner):
    with pytest.raises(CollectorError, match="makes no sense"):
        parse_hello({**HELLO, "owner": owner})


@pytest.fixture
def store(tmp_path):
    one = Store(str(tmp_path / "all.h5"), synced=False)
    yield one
    one.close()


def _message(dtype, *, has_rows, rows=None):
    data = Schema("x", np.dtype(dtype), (), 64, (), rows).to_json()
    return unpack(pack(Kind.DECLARE, value=1, parts=has_rows, data=data))


def test_rows_are_accepted_after_the_answer_to_a_declaration(store):
    declared = DeclaredDatasets()
    with pytest.raises(SchemaError, match="'x' was not declared; 3 rows"):
        declared.check("x", 3)
    assert declared.declare(_message("f8", has_rows=False), store, MEMORY)[1]
    known, is_new = DeclaredDatasets().declare(_message("i8", has_rows=False), store, MEMORY)
    assert (known.dtype, is_new) == (np.dtype("f8"), False)
    declared.check("x", 1)


@pytest.mark.parametrize(("dtype", "rows"), [("i8", None), ("f8", 10)])
def test_rows_declared_in_another_form_are_refused_on_that_connection(store, dtype, rows):
    store.declare(Schema("x", np.dtype("f8"), (), 64))
    declared = DeclaredDatasets()
    if rows is None:
        assert declared.declare(_message(dtype, has_rows=True), store, MEMORY)[0].dtype == "f8"
    else:
        with pytest.raises(SchemaError):
            declared.declare(_message(dtype, has_rows=True, rows=rows), store, MEMORY)
    declared.declare(_message("f8", has_rows=False), store, MEMORY)  # asked by another thread
    with pytest.raises(SchemaError, match="2 rows of this client are not stored"):
        declared.check("x", 2)
    again = DeclaredDatasets()
    again.declare(_message("f8", has_rows=True), store, MEMORY)
    again.check("x", 2)


def test_a_refused_declaration_changes_nothing(store):
    declared = DeclaredDatasets()
    declared.declare(_message("f8", has_rows=True), store, MEMORY)
    with pytest.raises(SchemaError):
        declared.declare(_message("f8", has_rows=False, rows=5), store, MEMORY)
    with pytest.raises(CollectorError):
        declared.declare(unpack(pack(Kind.DECLARE, data={"name": "x"})), store, MEMORY)
    declared.check("x", 1)
