"""Messages with false claims, processed by a collector that may use only little more memory.

Covers `shardkeep.collector.server.receiver`, `shardkeep.collector.server.router` and
`shardkeep.collector.server.server`.
"""

import json
import os
import random
import resource
import struct
import time

import numpy as np
import pytest
import zmq

from shardkeep.collector.protocol.messages import BadMessage, Kind, Part, pack, pack_parts, unpack
from shardkeep.collector.protocol.schema import dtype_to_json
from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.protocol.values import pack_attribute
from shardkeep.collector.server.events import Events
from shardkeep.collector.server.router import open_router
from shardkeep.collector.server.server import Server
from shardkeep.hdf5.storage.dtypes import TEXT
from tests.procs.collector_run import start

HELLO = {"id": "00" * 16, "rank": 0, "world_size": 2, "pid": 1, "host": "nowhere"}
HEADER = {"filters": [], "rows": None, "chunk_rows": 0, "row_shape": []}
ROUTE = b"r"
MOST_ROWS = 65536 * ((1 << 32) - 1)
PADDED = np.dtype({"names": ["t", "n"], "formats": [TEXT, "u1"], "offsets": [0, 8], "itemsize": 1 << 20})


class _Answers:
    """A socket that records what is sent to it."""

    def __init__(self):
        self.sent = []

    def send_multipart(self, frames, _flags):
        header = struct.unpack("<2sBBIQQ", frames[1])
        self.sent.append((Kind(header[2]), json.loads(frames[2]) if len(frames) > 2 else None))


def _server(folder):
    """Return a collector without its loop: the test passes messages to it."""
    server = Server(
        Settings(os.path.join(folder, "all.h5"), f"ipc://{folder}/s", None, 16 << 20, "flush"), Events(None)
    )
    answers = _Answers()
    server._real, server._router = server._router, answers
    return server, answers


def _pass(server, frames):
    try:
        server._process(ROUTE, unpack([memoryview(bytes(one)) for one in frames]))
        return "processed"
    except BadMessage as error:
        return f"refused: {error}"


def _declare(name, dtype="<f8", **values):
    return pack(
        Kind.DECLARE,
        value=1,
        data={"name": name, "dtype": dtype_to_json(np.dtype(dtype)), **HEADER, **values},
    )


def _batch(name, rows, data, sequence=1, keyed=False):
    table = pack_parts([Part(name, rows, len(data), None, keyed)])
    return [*pack(Kind.BATCH, sequence=sequence, parts=1), table, data]


def _value(data, sequence):
    table = pack_parts([Part("v", 0, len(data), is_value=True)])
    return [*pack(Kind.BATCH, sequence=sequence, parts=1), table, data.tobytes()]


def _limit(allowance_mib):
    with open("/proc/self/status") as status:
        size_kib = next(int(line.split()[1]) for line in status if line.startswith("VmSize:"))
    limit = (size_kib + allowance_mib * 1024) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _send_false_claims(write_end, folder):
    server, answers = _server(folder)
    _pass(server, pack(Kind.HELLO, data=HELLO))
    for frames in (
        _declare("text", TEXT),
        _declare("both", PADDED, chunk_rows=1),
        _declare("words", TEXT, row_shape=[100, 1000]),
        _declare("packed", np.dtype("<u1"), chunk_rows=1 << 30, filters=[[1, 0, [4]]]),
        _declare("long", TEXT, chunk_rows=1 << 27),
        _declare("too many", rows=1 << 62),
        _declare("keys", rows=MOST_ROWS),
        _declare("none", np.dtype("<f4"), row_shape=[0]),
    ):
        _pass(server, frames)
    _limit(200)
    batches = (
        ("text", (1 << 32) - 1, bytes(16), False),
        ("both", (1 << 32) - 1, bytes(16), False),
        ("both", 300, bytes(5 * 300), False),
        ("words", 4000, bytes(4000), False),
        ("text", 1, b"\xff\xff\xff\xff", False),
        ("text", 1, b"\x03\0\0\0a\0b", False),
        ("keys", (1 << 32) - 1, bytes(16), True),
        ("keys", 1, struct.pack("<q", MOST_ROWS - 1) + bytes(8), True),
        ("keys", 1, struct.pack("<q", -1) + bytes(8), True),
        ("none", (1 << 32) - 1, b"", False),
        ("text", 2, b"\x01\0\0\0\x02\0\0\0abc", False),
    )
    for sequence, (name, rows, data, keyed) in enumerate(batches, 1):
        _pass(server, _batch(name, rows, data, sequence, keyed))
        server._commit()
        assert server._committer.failure is None, (name, rows, server._committer.failure)
    for frames in (
        [*pack(Kind.BATCH, sequence=99, parts=(1 << 32) - 1), b""],
        [*pack(Kind.BATCH, sequence=99, parts=1 << 20), struct.pack("<HBBIQQ", 0, 1, 0, 1, 1, 0) * (1 << 20)],
        [*pack(Kind.HELLO), b'{"a": [' + b"[]," * (5 << 20) + b"1]}"],
        pack(Kind.WANT, value=(1 << 64) - 1),
        pack(Kind.GIVE_BACK, value=(1 << 64) - 1),
        pack(Kind.FLUSH, sequence=(1 << 64) - 1),
    ):
        _pass(server, frames)
    refused = [data["text"] for kind, data in answers.sent if kind is Kind.REFUSED]
    server._committer.request_commit()
    server._commit()
    os.write(write_end, json.dumps([refused, server._committer.store.rows]).encode())


def test_claims_are_compared_with_the_received_bytes(tmp_path):
    child = start(_send_false_claims, str(tmp_path))
    assert child.join() == 0
    refused, rows = json.loads(child.said())
    assert rows == {"text": 2, "both": 300, "keys": MOST_ROWS, "none": (1 << 32) - 1}
    for part in ("too few for", "cut off", "NUL", "keys", "chunks of", "declared with"):
        assert any(part in one for one in refused), part


def _mutant(chance, frames):
    """Return frames with another byte, number or length."""
    frames = [bytearray(one) for one in frames]
    for _ in range(chance.randrange(1, 4)):
        one = chance.choice(frames)
        how = chance.randrange(4)
        if how == 0 and one:
            one[chance.randrange(len(one))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        elif how == 1 and len(one) > 8:
            place = chance.randrange(len(one) - 8)
            one[place : place + 8] = chance.choice(
                [0, 1, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1]
            ).to_bytes(8, "little")
        elif how == 2:
            del one[chance.randrange(len(one) + 1) :]
        else:
            digits = [place for place, byte in enumerate(one) if 48 <= byte <= 57]
            if digits:
                place = chance.choice(digits)
                one[place : place + 1] = chance.choice(
                    [b"-1", b"1e400", b"null", b"99999999999", b"[]", b"true"]
                )
    return frames


def _send_at_random(write_end, folder, seed):
    server, _ = _server(folder)
    chance = random.Random(seed)
    _limit(300)
    kinds = [np.dtype("<f4"), TEXT, np.dtype([("a", "<i2"), ("t", TEXT)]), np.dtype((np.void, 8)), PADDED]
    for turn in range(3000):
        if turn % 50 == 0:
            _pass(server, pack(Kind.HELLO, data=HELLO))
        name = f"d{chance.randrange(30)}/x"
        session = server._sessions.by_route.get(ROUTE)
        sequence = 1 if session is None else min(session.entry.sequence + 1, (1 << 64) - 1)
        frames = chance.choice(
            [
                _declare(name, chance.choice(kinds), rows=chance.choice([None, 10]), row_shape=[2]),
                _declare(name, np.dtype("<f8"), filters=[[1, 0, [4]]]),
                _value(pack_attribute("u", "m", name), sequence),
                _batch(name, 1, b"\x01\0\0\0\x01\0\0\0ab", sequence),
                _batch(name, 2, bytes(16), sequence),
                _batch(name, 1, bytes(16), sequence, keyed=True),
                pack(Kind.HELLO, sequence=1, data=HELLO),
                pack(chance.choice(list(Kind)), sequence=sequence, value=4096),
            ]
        )
        if chance.random() < 0.7:
            frames = _mutant(chance, frames)
        _pass(server, frames)
        if turn % 20 == 0:
            server._committer.request_commit()
            server._commit()
        assert server._committer.failure is None, server._committer.failure
    os.write(write_end, str(len(server._committer.store.rows)).encode())


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_random_messages_do_not_disturb_the_file(tmp_path, seed):
    child = start(_send_at_random, str(tmp_path), seed)
    assert child.join() == 0
    assert int(child.said()) > 3


def _listen_and_read_nothing(write_end, address):
    context = zmq.Context()
    router = open_router(context, address, None, 1 << 20)
    os.write(write_end, b"listening")
    time.sleep(2.5)  # as long as a heartbeat of libzmq, which must not be due here
    while router.poll(500):
        router.recv_multipart()
        os.write(write_end, b".")


def _flood_and_die(write_end, address):
    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(address)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        try:
            socket.send_multipart(pack(Kind.PING), zmq.NOBLOCK)
        except zmq.Again:
            time.sleep(0.01)


def test_a_client_that_dies_with_much_unread_does_not_abort_the_collector(tmp_path):
    address = f"ipc://{tmp_path}/s"
    listener = start(_listen_and_read_nothing, address)
    assert listener.wait_for_word() == b"listening"
    client = start(_flood_and_die, address)
    assert client.join() == 0
    assert listener.join() == 0
    assert len(listener.said()) > 16
