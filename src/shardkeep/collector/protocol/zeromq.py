"""ZeroMQ, an optional dependency that is imported when it is used."""

from __future__ import annotations

from typing import Any

from shardkeep.errors import MissingExtraError

__all__ = ["zmq_module"]


def zmq_module() -> Any:
    """Return the module ``zmq``.

    Raises
    ------
    MissingExtraError
        pyzmq is not installed.
    """
    try:
        import zmq
        import zmq.utils.z85
    except ImportError:
        message = "the collector needs pyzmq: pip install 'shardkeep[collector]'"
        raise MissingExtraError(message) from None
    return zmq
