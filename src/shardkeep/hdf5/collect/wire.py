"""ZeroMQ, imported where it is used, with one context for each process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardkeep.errors import CollectorError, MissingExtraError

if TYPE_CHECKING:
    import zmq

    from shardkeep.hdf5.collect.keys import ClientKey

__all__ = ["Target", "open_dealer", "shared_context", "zmq_module"]


@dataclass(frozen=True)
class Target:
    """An address and the key for it."""

    address: str
    key: ClientKey | None


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


def open_dealer(target: Target) -> Any:
    """Return a socket that connects, now and after each interruption.

    Raises
    ------
    CollectorError
        ZeroMQ does not know such an address.
    """
    zmq = zmq_module()
    one = shared_context().socket(zmq.DEALER)
    one.linger = 0
    one.sndhwm = one.rcvhwm = 1000
    one.heartbeat_ivl, one.heartbeat_timeout = 2000, 8000
    one.reconnect_ivl, one.reconnect_ivl_max = 50, 1000
    if target.key is not None:
        key = target.key
        one.curve_serverkey, one.curve_publickey, one.curve_secretkey = key.server, key.public, key.secret
    if target.address.startswith("tcp://["):
        one.ipv6 = True
    try:
        one.connect(target.address)
    except zmq.ZMQError as error:
        one.close()
        raise CollectorError(f"{target.address!r} is no address to connect to ({error})") from None
    return one


_contexts: dict[int, zmq.Context[Any]] = {}
