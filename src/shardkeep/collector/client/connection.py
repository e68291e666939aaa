"""The connection of a client to its collector over ZeroMQ."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardkeep.collector.protocol.address import open_socket_inode
from shardkeep.collector.protocol.keys import ClientKey
from shardkeep.collector.protocol.zeromq import HANDSHAKE_MS, zmq_module
from shardkeep.errors import CollectorError, ShardkeepError

if TYPE_CHECKING:
    import zmq

__all__ = ["Connection", "Target", "ping_every_s"]

_PING_IDLE_S = 2.0
_PING_WAITING_S = 0.5
_LONGEST_PING_S = 4.0  # a collector takes a client for lost that it has not received anything from for 10 s
_PINGS_PER_S = 2_500
_DEAD_AFTER_S = 6.0
_MOVED_AFTER_S = 0.6


@dataclass(frozen=True)
class Target:
    """The address of a collector and the key for it; of a Unix socket also its identity (device, inode)."""

    address: str
    key: ClientKey | None
    identity: tuple[int, int] | None = None


def ping_every_s(world_size: int, silent_s: float = 0.0, *, is_idle: bool = False) -> float:
    """Return the time from a message of a client to its next PING or HELLO.

    Those of all ranks together must not occupy the collector, and a slow one must not receive ever more of
    them: 10,000 clients that waited for rows to become durable, and sent a ping every 0.5 s, took twice the
    processor time of their rows.

    Parameters
    ----------
    world_size : int
    silent_s : float
        How long the client has received nothing.
    is_idle : bool
        Whether it waits for nothing.
    """
    least_s = _PING_IDLE_S if is_idle else _PING_WAITING_S
    return max(least_s, min(max(world_size / _PINGS_PER_S, silent_s / 2), _LONGEST_PING_S))


class Connection:
    """A socket that is opened again when the collector has moved or died.

    It belongs to one thread; others may only call `wake` and read `address`.

    Parameters
    ----------
    find : callable
        Returns the `Target`, or None while there is none; called again after an interruption.
    description : str
        What `find` searches for, for messages.
    world_size : int

    Attributes
    ----------
    sent_at : float
        When the last message was sent.
    search_every_s : float
        Time between two calls of `find` during a silence.
    """

    def __init__(self, find: Callable[[], Target | None], description: str, world_size: int) -> None:
        self.description = description
        self.sent_at = 0.0
        self._find = find
        self._world_size = world_size
        self.search_every_s = ping_every_s(world_size)
        self._dead_after_s = max(_DEAD_AFTER_S, 10 * self.search_every_s)
        self._zmq = zmq_module()
        self._socket: Any = None
        self._handshake: _Handshake | None = None
        self._target: Target | None = None
        self._inode_fd: int | None = None
        self._received_at = self._searched_at = 0.0
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    @property
    def address(self) -> str:
        """Address of the collector, or where the client searches for it."""
        return self.description if self._target is None else self._target.address

    @property
    def is_open(self) -> bool:
        """Whether there is a socket; the collector may not have answered yet."""
        return self._socket is not None

    @property
    def is_local(self) -> bool:
        """Whether the collector is on this host, so that memory can be shared."""
        return self._target is not None and self._target.address.startswith("ipc://")

    def ping_every_s(self, *, is_idle: bool) -> float:
        """Return the time from a message to the next PING or HELLO."""
        return ping_every_s(self._world_size, time.monotonic() - self._received_at, is_idle=is_idle)

    def wake(self) -> None:
        """End `wait`; any thread, a signal handler and a finalizer may call this."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_writer, b".")

    def open(self) -> None:
        """Search for the collector once, and connect if it is found.

        Raises
        ------
        ShardkeepError
            Searching again would not help.
        """
        target = self._find()
        if target is None:
            return
        self._close_inode()
        if target.address.startswith("ipc://"):
            try:
                self._inode_fd = open_socket_inode(target.address[6:])
            except FileNotFoundError:
                return  # removed after it was found
        self._target = target
        self._socket, self._handshake = _open_dealer(target, self._inode_fd)
        self._received_at = time.monotonic()

    def wait(self, wait_s: float) -> bool:
        """Wait for a message or for `wake`; return whether there is a message."""
        zmq = self._zmq
        poller = zmq.Poller()
        poller.register(self._wake_reader, zmq.POLLIN)
        if self._socket is not None:
            poller.register(self._socket, zmq.POLLIN)
        ready = dict(poller.poll(max(wait_s, 0.0) * 1000))
        if self._wake_reader in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_reader, 4096)
        if self._socket is None or self._socket not in ready:
            return False
        self._received_at = time.monotonic()
        return True

    def send(self, frames: list[Any]) -> bool:
        """Send a message; return whether ZeroMQ had room for it."""
        try:
            self._socket.send_multipart(self._without_copy(frames), self._zmq.NOBLOCK, copy=False)
        except self._zmq.Again:
            return False
        self.sent_at = time.monotonic()
        return True

    def _without_copy(self, frames: list[Any]) -> list[Any]:
        # All frames before the first is sent: pyzmq stops its garbage collector, which this needs, by
        # `atexit`, before or after the last rows are sent, and half a message would end the connection.
        try:
            return [self._zmq.Frame(one) for one in frames]  # pyzmq copies short ones
        except RuntimeError:
            return [self._zmq.Frame(one, copy=True) for one in frames]

    def receive(self, wait_s: float = 0.0) -> list[bytes] | None:
        """Return a message; None if there is none."""
        if self._socket is None or (wait_s > 0 and not self._socket.poll(wait_s * 1000)):
            return None
        try:
            frames: list[bytes] = self._socket.recv_multipart(self._zmq.NOBLOCK)
        except self._zmq.Again:
            return None
        return frames

    def fault(self) -> str | None:
        """Return why the socket must be closed: a long silence, or a collector that has moved."""
        now = time.monotonic()
        silent_s = now - self._received_at
        if silent_s > self._dead_after_s:
            return "it did not answer"
        if silent_s > _MOVED_AFTER_S and now > self._searched_at + self.search_every_s:
            self._searched_at = now
            with contextlib.suppress(ShardkeepError):
                found = self._find()
                if found is not None and found != self._target:
                    return "it has moved"
        return None

    def handshake_problem(self) -> str | None:
        """Return why no collector has answered, if the handshake shows it."""
        return None if self._handshake is None else self._handshake.problem()

    def end_handshake(self) -> None:
        """Note that the collector has answered."""
        handshake, self._handshake = self._handshake, None
        if handshake is not None:
            handshake.close()

    def close(self, *, linger_ms: int) -> None:
        """Close the socket; ZeroMQ may send for `linger_ms` more."""
        self.end_handshake()
        one, self._socket = self._socket, None
        if one is not None:
            one.close(linger=linger_ms)

    def end(self) -> None:
        """Close everything but what `wake` needs."""
        self.close(linger_ms=1000)
        os.close(self._wake_reader)

    def _close_inode(self) -> None:
        fd, self._inode_fd = self._inode_fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        # Not before: another thread may be about to wake this one, and ZeroMQ may still send. These
        # descriptors would then be those of other files.
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._wake_writer)
        with contextlib.suppress(AttributeError, OSError):
            self._close_inode()


class _Handshake:
    """The progress of a connection before a message can be sent, which ZeroMQ reports to a monitor only.

    Parameters
    ----------
    dealer : zmq.Socket
        The socket, before it connects.
    """

    def __init__(self, dealer: Any) -> None:
        zmq = zmq_module()
        self._dealer = dealer
        self._failures = {
            zmq.EVENT_DISCONNECTED,
            zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
            zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
            zmq.EVENT_HANDSHAKE_FAILED_AUTH,
        }
        self._monitor = dealer.get_monitor_socket(
            zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | sum(self._failures)
        )
        self._is_connected = self._is_refused = self._is_complete = False
        self._was_checked = False

    def problem(self) -> str | None:
        """Return why it does not proceed; None if it does, or that is not known."""
        from zmq.utils.monitor import recv_monitor_message

        zmq = zmq_module()
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
            if event == zmq.EVENT_CONNECTED:
                self._is_connected, self._is_complete = True, False
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_complete, self._is_refused = True, False
            elif event in self._failures:
                self._is_refused = self._is_refused or (self._is_connected and not self._is_complete)
                self._is_connected = self._is_complete = False
        was_checked, self._was_checked = self._was_checked, True
        if self._is_refused:
            return "it closes the connection: it does not accept this key"
        return "no process listens there" if was_checked and not self._is_connected else None

    def close(self) -> None:
        """Stop monitoring; before the socket is closed, and as soon as possible."""
        # Events that are not received would block ZeroMQ's own thread at some point.
        self._dealer.disable_monitor()
        self._monitor.close(linger=0)


def _open_dealer(target: Target, inode_fd: int | None) -> tuple[Any, _Handshake | None]:
    """Return a socket that connects, now and after each interruption; with a key, also its handshake.

    Through `inode_fd` it connects to the Unix socket that was checked, whatever has its name later.
    """
    zmq = zmq_module()
    one = _shared_context().socket(zmq.DEALER)
    one.linger = 0
    one.sndhwm = one.rcvhwm = 1000
    one.heartbeat_ivl, one.heartbeat_timeout = 2000, 8000
    one.reconnect_ivl, one.reconnect_ivl_max = 50, 1000
    key = target.key
    if key is not None:
        one.curve_serverkey, one.curve_publickey, one.curve_secretkey = key.server, key.public, key.secret
        one.handshake_ivl = HANDSHAKE_MS
    if target.address.startswith("tcp://["):
        one.ipv6 = True
    handshake = None if key is None else _Handshake(one)
    try:
        one.connect(target.address if inode_fd is None else f"ipc:///proc/self/fd/{inode_fd}")
    except zmq.ZMQError as error:
        if handshake is not None:
            handshake.close()
        one.close()
        message = f"cannot connect to {target.address!r} ({error})"
        raise CollectorError(f"{message}: use ipc:///path/of/a/socket or tcp://host:port") from None
    return one, handshake


def _shared_context() -> zmq.Context[Any]:
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
