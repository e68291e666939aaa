"""ZeroMQ, an optional dependency that is imported when it is used."""

from __future__ import annotations

from typing import Any

from shardkeep._extras import import_extra

__all__ = ["HANDSHAKE_MS", "zmq_module"]

HANDSHAKE_MS = 120_000
"""Time for a handshake with a key. After ZeroMQ's 30 s thousands of clients that come at once begin again."""


def zmq_module() -> Any:
    """Return the module ``zmq``.

    Raises
    ------
    MissingExtraError
        pyzmq is not installed.
    """
    import_extra("zmq.utils.z85", "the collector")
    return import_extra("zmq", "the collector")
