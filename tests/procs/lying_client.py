"""A client that lies: a socket that sends arbitrary messages to a collector."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
from typing import Any

import numpy as np
import zmq

from shardkeep.collector.protocol.messages import Kind, Part, pack, pack_parts
from shardkeep.collector.protocol.schema import dtype_to_json
from tests.waiting import PATIENCE_S

__all__ = ["LyingClient"]


class LyingClient:
    """A client that sends HELLO, and then any message of a test."""

    def __init__(self, address: str, rank: int = 0, **options: Any) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        for name, value in options.items():
            setattr(self.socket, name, value)
        self.socket.connect(address)
        self.sequence = 0
        self.hello(rank)

    def hello(self, rank: int = 0, **values: Any) -> None:
        hello = {"id": os.urandom(16).hex(), "rank": rank, "world_size": 1 << 20, "pid": 1, "host": "h"}
        self.send(pack(Kind.HELLO, data={**hello, **values}))

    def send(self, frames: list[Any], flags: int = 0) -> None:
        self.socket.send_multipart(frames, flags)

    def receive(self, *kinds: Kind) -> Any:
        """Return the JSON of the next message of these kinds."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self.socket.poll(1000):
                frames = self.socket.recv_multipart()
                if struct.unpack("<2sBBIQQ", frames[0])[2] in kinds:
                    return json.loads(frames[1]) if len(frames) > 1 else {}
        raise AssertionError(f"none of {kinds} came")

    def declare(self, name: str, dtype: Any = "u1", **values: Any) -> Any:
        data = {"name": name, "dtype": dtype_to_json(np.dtype(dtype)), "filters": [], "rows": None}
        data |= {"chunk_rows": 0, "row_shape": [], **values}
        self.send(pack(Kind.DECLARE, value=1, data=data))
        return self.receive(Kind.DECLARED, Kind.REFUSED)

    def batch(self, parts: list[Part], *frames: Any, sequence: int | None = None) -> None:
        if sequence is None:
            self.sequence = sequence = self.sequence + 1
        self.send([*pack(Kind.BATCH, sequence=sequence, parts=len(parts)), pack_parts(parts), *frames])

    def value(self, head: dict[str, Any], body: bytes = b"") -> None:
        text = json.dumps(head, separators=(",", ":")).encode()
        data = len(text).to_bytes(4, "little") + text + body
        self.batch([Part("v", 0, len(data), is_value=True)], data)

    def flush(self) -> None:
        """Wait until the collector has taken everything so far, or has thrown this client out."""
        self.send(pack(Kind.FLUSH, sequence=self.sequence))
        self.receive(Kind.STATE, Kind.UNKNOWN)

    def close(self) -> None:
        with contextlib.suppress(zmq.ZMQError):
            self.socket.close()
