"""ZeroMQ, imported where it is used, with one context for each process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardkeep.errors import CollectorError, MissingExtraError

if TYPE_CHECKING:
    import zmq

    from shardkeep.collector.protocol.keys import ClientKey

__all__ = ["Handshake", "Target", "open_dealer", "shared_context", "zmq_module"]


@dataclass(frozen=True)
class Target:
    """An address, the key for it, and of a Unix socket which one it is (device, inode)."""

    address: str
    key: ClientKey | None
    identity: tuple[int, int] | None = None


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


def open_dealer(target: Target, place_fd: int | None = None) -> tuple[Any, Handshake | None]:
    """Return a socket that connects, now and after each interruption; and, with a key, how that goes.

    Parameters
    ----------
    target : Target
    place_fd : int, optional
        Of the Unix socket that the address names (`address.open_socket_place`), to connect to that
        one, whatever the name means later; open for as long as the socket.

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
    handshake = None if target.key is None else Handshake(one)
    try:
        one.connect(target.address if place_fd is None else f"ipc:///proc/self/fd/{place_fd}")
    except zmq.ZMQError as error:
        if handshake is not None:
            handshake.close()
        one.close()
        raise CollectorError(f"{target.address!r} is no address to connect to ({error})") from None
    return one, handshake


class Handshake:
    """What becomes of a connection before anything can be sent on it: ZeroMQ tells it to a monitor only.

    Parameters
    ----------
    dealer : zmq.Socket
        Before it connects.
    """

    def __init__(self, dealer: Any) -> None:
        zmq = zmq_module()
        self._dealer = dealer
        self._failed = {
            zmq.EVENT_DISCONNECTED,
            zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
            zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
            zmq.EVENT_HANDSHAKE_FAILED_AUTH,
        }
        self._news = dealer.get_monitor_socket(
            zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | sum(self._failed)
        )
        self._is_open = self._is_refused = self._is_agreed = False
        self._has_had_time = False

    def trouble(self) -> str | None:
        """Return what is wrong, in words; None if nothing is."""
        from zmq.utils.monitor import recv_monitor_message

        zmq = zmq_module()
        while self._news.poll(0):
            event = recv_monitor_message(self._news, zmq.NOBLOCK)["event"]
            if event == zmq.EVENT_CONNECTED:
                self._is_open, self._is_agreed = True, False
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_agreed, self._is_refused = True, False
            elif event in self._failed:
                self._is_refused = self._is_refused or (self._is_open and not self._is_agreed)
                self._is_open = self._is_agreed = False
        had_time, self._has_had_time = self._has_had_time, True
        if self._is_refused:
            return "it closes the connection: the key is not one that this collector takes"
        return "nobody is reached there" if had_time and not self._is_open else None

    def close(self) -> None:
        """Hear no more of it; before the socket is closed, and as soon as it is not needed."""
        # News that nobody takes away would block ZeroMQ's own thread one day.
        self._dealer.disable_monitor()
        self._news.close(linger=0)


_contexts: dict[int, zmq.Context[Any]] = {}
