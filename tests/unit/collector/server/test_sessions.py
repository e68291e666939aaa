"""Whom a collector waits for, and whom it lets go."""

import dataclasses
import os
import subprocess
import sys

import pytest

from shardkeep.collector.server.sessions import Session, parse_hello
from shardkeep.collector.store.client_table import ClientEntry
from shardkeep.errors import CollectorError
from shardkeep.files.owner import this_process

HELLO = {"id": "ab" * 16, "rank": 0, "world_size": 2, "pid": 1, "host": "node7"}


def _session(**owner):
    hello = {**HELLO, "owner": {**dataclasses.asdict(this_process()), **owner}}
    return Session(b"", ClientEntry(bytes(16), 0, 1), "rank 0", 0, owner=parse_hello(hello)[-1], seen=100.0)


@pytest.fixture(scope="module")
def dead():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_process_of_this_host_that_has_ended_is_not_waited_for(dead):
    assert _session(pid=dead).is_silent(102.0)
    assert not _session(pid=dead).is_silent(100.5)
    assert not _session().is_silent(102.0)
    assert _session().is_silent(111.0)
    assert _session(start_ticks=this_process().start_ticks + 1).is_silent(102.0)  # its number is another's


def test_the_number_of_a_process_elsewhere_says_nothing_here(dead):
    """Containers may share the name of their host; process 4711 of another one is nobody here."""
    for other in ({"namespace": "another"}, {"boot": "another"}, {"host": "another"}):
        assert not _session(pid=dead, **other).is_silent(102.0)
    unknown = parse_hello({**HELLO, "pid": dead, "host": os.uname().nodename})[-1]
    assert unknown is None


@pytest.mark.parametrize("owner", [{}, {"pid": "x"}, {"host": 1, "boot": 1, "namespace": 1, "pid": None}])
def test_an_owner_that_makes_no_sense(owner):
    with pytest.raises(CollectorError, match="makes no sense"):
        parse_hello({**HELLO, "owner": owner})
