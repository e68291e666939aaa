"""Lies of a client that has the key, which must not cost other clients or the collector anything."""

import contextlib
import os
import struct
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import zmq

from shardkeep.collector.protocol.messages import Kind, Part, pack
from shardkeep.collector.protocol.slots import SLOT_BYTES
from shardkeep.hdf5 import connect
from shardkeep.hdf5.storage.dtypes import TEXT
from shardkeep.world import World
from tests.procs.collector_run import collecting
from tests.procs.lying_client import LyingClient
from tests.waiting import PATIENCE_S

MEMORY_BYTES = 64 << 20


def peak_bytes(pid: int) -> int:
    """Return the peak memory of a process, with shared memory."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) << 10


def _disk_bytes(path: Path) -> int:
    return 512 * os.stat(path).st_blocks


def _twice(liar, slots):
    liar.batch([Part("x", SLOT_BYTES, SLOT_BYTES, 0)] * 600)


def _as_one(liar, slots):
    size = slots["count"] * SLOT_BYTES
    liar.batch([Part("x", size, size, 0)])


def _in_many_batches(liar, slots):
    for _ in range(600):
        liar.batch([Part("x", SLOT_BYTES, SLOT_BYTES, 0)])


def _outside(liar, slots):
    for offset in (slots["count"] * SLOT_BYTES, 1 << 62, (1 << 64) - SLOT_BYTES, 7):
        liar.batch([Part("x", SLOT_BYTES, SLOT_BYTES, offset)])
        liar.receive(Kind.UNKNOWN)
        liar.hello()
        liar.receive(Kind.WELCOME)
        liar.declare("x")
        liar.send(pack(Kind.SLOTS))
        liar.receive(Kind.SLOTS)
        liar.sequence = 0


def _refused_and_gone(liar, slots):
    liar.batch([Part("x", 11, 10, 0)])
    liar.receive(Kind.REFUSED)
    liar.send(pack(Kind.BYE, sequence=1))


def _empty_rows(liar, slots):
    count = 3_000_000
    liar.value({"put": "v", "vlen": "<i4", "shape": [count], "lengths": [0] * count})


def _empty_texts(liar, slots):
    count = 1 << 20
    liar.value({"put": "v", "dtype": {"text": True}, "shape": [count]}, bytes(4 * count))
    liar.declare("words", TEXT)
    liar.batch([Part("words", count, 4 * count)], bytes(4 * count))
    liar.declare("page", TEXT, row_shape=[count])


def _rows_by_number(liar, slots):
    count = 400_000
    liar.declare("numbered", rows=1 << 40)
    keys = np.arange(0, 3 * count, 3, dtype="<i8").tobytes()
    liar.batch([Part("numbered", count, 9 * count, keyed=True)], keys + bytes(count))
    for chunk in range(4):  # a chunk of writers each
        keys = (np.arange(1000, dtype="<i8") * 65536 + chunk).tobytes()
        liar.batch([Part("numbered", 1000, 9000, keyed=True)], keys + bytes(1000))


def _deep_and_long(liar, slots):
    liar.declare("/".join("a" * 30_000))
    liar.value({"put": "/".join("b" * 30_000), "dtype": "|u1", "shape": []}, b"\0")
    liar.value({"set": "unit", "on": "/".join("c" * 30_000), "dtype": "|u1", "shape": []}, b"\0")
    liar.send([*pack(Kind.DECLARE, value=1), b'{"a":' + b"[" * 900_000])
    liar.send([*pack(Kind.DECLARE, value=1), b"[" + b"[]," * 5_000_000 + b"0]"])


def _types(liar, slots):
    members = {f"m{number}": number for number in range(60_000)}
    for data in (
        {"enum": "<i4", "members": members},
        {"fields": [[f"f{number}", "|u1", number] for number in range(20_000)], "itemsize": 20_000},
        {"base": {"base": "<f8", "shape": [1 << 40]}, "shape": [1 << 40]},
    ):
        liar.send(
            pack(
                Kind.DECLARE,
                value=1,
                data={
                    "name": "t",
                    "dtype": data,
                    "filters": [],
                    "rows": None,
                    "chunk_rows": 0,
                    "row_shape": [],
                },
            )
        )
        liar.receive(Kind.REFUSED)


def _sizes(liar, slots):
    for values in (
        {"chunk_rows": 1 << 60},
        {"row_shape": [1 << 40, 1 << 40]},
        {"row_shape": [0, 1 << 62]},
        {"row_shape": [1] * 31},
        {"rows": 1 << 62},
        {"rows": 1 << 62, "chunk_rows": (1 << 63) - 1},
        {"filters": [[1, 0, [4]]], "chunk_rows": 1 << 31},
    ):
        liar.declare("sizes", **values)
        liar.batch([Part("sizes", (1 << 32) - 1, 16)], bytes(16))
        liar.batch([Part("sizes", 1, 16, keyed=True)], struct.pack("<q", 1 << 62) + bytes(8))


def _out_of_order(liar, slots):
    for sequence in (5, 0, 1, 1, (1 << 64) - 1):
        liar.batch([Part("x", 3, 3)], b"abc", sequence=sequence)
    liar.send(pack(Kind.BYE, sequence=1 << 63))
    liar.batch([Part("x", 3, 3)], b"abc", sequence=2)
    liar.send(pack(Kind.FLUSH, sequence=(1 << 64) - 1))
    for kind in Kind:
        liar.send(pack(kind, sequence=(1 << 64) - 1, value=(1 << 64) - 1, parts=(1 << 32) - 1))


def _many_identities(liar, slots):
    for number in range(2000):
        liar.hello(number)
        if number % 7 == 0:
            liar.send(pack(Kind.BYE))


def _never_reads(liar, slots):
    data = {
        "name": "n",
        "dtype": {"enum": "<i4", "members": {f"m{number}": number for number in range(2000)}},
    }
    data |= {"filters": [], "rows": None, "chunk_rows": 0, "row_shape": []}
    for _ in range(3000):
        with contextlib.suppress(zmq.Again):
            liar.send(pack(Kind.DECLARE, value=1, data=data), zmq.NOBLOCK)


def _attributes(liar, slots):
    for number in range(3):
        body = bytes(6 << 20)
        liar.value({"set": f"a{number}", "on": "/", "dtype": "|u1", "shape": [len(body)]}, body)


LIES = [
    *(_twice, _as_one, _in_many_batches, _outside, _refused_and_gone, _empty_rows, _empty_texts),
    *(
        _rows_by_number,
        _deep_and_long,
        _types,
        _sizes,
        _out_of_order,
        _many_identities,
        _never_reads,
        _attributes,
    ),
]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """Yield a collector for all lies, with an honest client."""
    path = tmp_path_factory.mktemp("lies") / "all.h5"
    with collecting(path, memory_bytes=MEMORY_BYTES, durability="flush", drain_s=1.0) as collector:
        collector.path, collector.before, collector.rows = path, peak_bytes(collector.pid), 0
        with connect(collector.address, World(rank=7, size=1 << 20), timeout_s=PATIENCE_S) as client:
            collector.client = client
            yield collector
    with h5py.File(path) as file:
        assert file["honest"][:].tolist() == list(range(collector.rows))


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_affects_neither_other_clients_nor_the_file(target, lie):
    liar = LyingClient(target.address)
    liar.receive(Kind.WELCOME)
    liar.declare("x")
    liar.send(pack(Kind.SLOTS))
    before = _disk_bytes(target.path)
    lie(liar, liar.receive(Kind.SLOTS))
    # Other clients are served, and the file is not given up: their rows need no restart.
    begin = time.monotonic()
    target.client.append("honest", [target.rows])
    target.rows += 1
    target.client.flush()
    waited_s = time.monotonic() - begin
    liar.close()
    assert target.process.is_alive()
    assert peak_bytes(target.pid) - target.before < MEMORY_BYTES
    assert _disk_bytes(target.path) - before < 100 << 20
    assert waited_s < 20
    assert "trying again" not in Path(f"{target.path}.log").read_text()
