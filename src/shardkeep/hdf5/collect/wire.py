"""ZeroMQ, imported where it is used, with one context for each process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from shardkeep.errors import MissingExtraError

if TYPE_CHECKING:
    import zmq

__all__ = ["shared_context", "zmq_module"]


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


def shared_context() -> zmq.Context[Any]:
    """Return the context of this process; a forked child has its own, and never closes its parent's."""
    pid = os.getpid()
    if pid not in _contexts:
        zmq = zmq_module()
        context: Any = zmq.Context()
        # A thousand clients in one process are allowed; libzmq's default is 1,023 sockets.
        context.set(zmq.MAX_SOCKETS, context.get(zmq.SOCKET_LIMIT))
        _contexts[pid] = context
    return _contexts[pid]


_contexts: dict[int, zmq.Context[Any]] = {}
