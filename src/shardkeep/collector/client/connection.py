"""`Connection`: a client's socket, which finds its collector again when that has moved or died."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from shardkeep.collector.protocol.address import open_socket_place
from shardkeep.collector.protocol.zeromq import Handshake, Target, open_dealer, zmq_module
from shardkeep.errors import ShardkeepError

__all__ = ["Connection"]

_DEAD_AFTER_S = 6.0
_MOVED_AFTER_S = 0.6
_LOOK_EVERY_S = 0.5


class Connection:
    """One socket at a time, for one thread; only `wake` may be called by others.

    Parameters
    ----------
    find : callable
        Returns the `Target`, or None while there is none; asked again after an interruption.
    what : str
        What `find` looks for, for messages.

    Attributes
    ----------
    spoke : float
        When something was sent last.
    """

    def __init__(self, find: Callable[[], Target | None], what: str) -> None:
        self.what = what
        self.spoke = 0.0
        self._find = find
        self._zmq = zmq_module()
        self._socket: Any = None
        self._handshake: Handshake | None = None
        self._target: Target | None = None
        self._place_fd: int | None = None
        self._heard = self._opened_at = self._looked_at = 0.0
        self._wakes, self._wake_end = os.pipe()
        os.set_blocking(self._wakes, False)
        os.set_blocking(self._wake_end, False)

    @property
    def address(self) -> str:
        """Where it is, or would be, connected to."""
        return self.what if self._target is None else self._target.address

    @property
    def is_open(self) -> bool:
        """Whether there is a socket; somebody may answer on it."""
        return self._socket is not None

    @property
    def is_local(self) -> bool:
        """Whether the collector is on this host, so that memory can be shared."""
        return self._target is not None and self._target.address.startswith("ipc://")

    def wake(self) -> None:
        """End the wait of the thread; from any other one, and from finalizers."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_end, b".")

    def open(self) -> bool:
        """Look for the collector once; raises `ShardkeepError` if looking on is of no use."""
        target = self._find()
        if target is None:
            return False
        self._leave_place()
        if target.address.startswith("ipc://"):
            try:
                self._place_fd = open_socket_place(target.address[6:])
            except FileNotFoundError:
                return False  # removed just now
        self._target = target
        self._socket, self._handshake = open_dealer(target, self._place_fd)
        self._opened_at = self._heard = time.monotonic()
        return True

    def wait(self, wait_s: float) -> bool:
        """Wait for a message or for `wake`; return whether there is a message."""
        zmq = self._zmq
        poller = zmq.Poller()
        poller.register(self._wakes, zmq.POLLIN)
        if self._socket is not None:
            poller.register(self._socket, zmq.POLLIN)
        ready = dict(poller.poll(max(wait_s, 0.0) * 1000))
        if self._wakes in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakes, 4096)
        if self._socket is None or self._socket not in ready:
            return False
        self._heard = time.monotonic()
        return True

    def send(self, frames: list[Any]) -> bool:
        """Send a message; False if there is no room for it now."""
        try:
            self._socket.send_multipart(self._lent(frames), self._zmq.NOBLOCK, copy=False)
        except self._zmq.Again:
            return False
        self.spoke = time.monotonic()
        return True

    def _lent(self, frames: list[Any]) -> list[Any]:
        # All of them before the first is sent: what lends memory to ZeroMQ is taken down by `atexit`, before
        # or after the last rows are sent, and half a message would be the end of the connection.
        try:
            return [self._zmq.Frame(one) for one in frames]  # short ones are copied
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
        """Return why it is to be closed, in words: nothing was heard for long, or the collector has moved."""
        now = time.monotonic()
        silent_s = now - max(self._heard, self._opened_at)
        if silent_s > _DEAD_AFTER_S:
            return "it did not answer"
        if silent_s > _MOVED_AFTER_S and now > self._looked_at + _LOOK_EVERY_S:
            self._looked_at = now
            with contextlib.suppress(ShardkeepError):
                found = self._find()
                if found is not None and found != self._target:
                    return "it has moved"
        return None

    def trouble(self) -> str | None:
        """Return why nobody has answered yet, in words, where that can be seen."""
        return None if self._handshake is None else self._handshake.trouble()

    def greet(self) -> None:
        """Note that the collector has answered."""
        handshake, self._handshake = self._handshake, None
        if handshake is not None:
            handshake.close()

    def close(self, *, linger_ms: int) -> None:
        """Let the socket go."""
        self.greet()
        one, self._socket = self._socket, None
        if one is not None:
            one.close(linger=linger_ms)

    def end(self) -> None:
        """Let everything go but what `wake` needs."""
        self.close(linger_ms=1000)
        os.close(self._wakes)

    def _leave_place(self) -> None:
        fd, self._place_fd = self._place_fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        # Not before: another thread may be about to wake this one, and ZeroMQ may still send what it has,
        # while the numbers would be those of other files.
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._wake_end)
        with contextlib.suppress(AttributeError, OSError):
            self._leave_place()
