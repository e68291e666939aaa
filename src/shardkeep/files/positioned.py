"""Base of file objects for HDF5 that read and write at explicit offsets, and signals in their methods."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

__all__ = ["PositionedFile", "signals_between_calls"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.01


@contextlib.contextmanager
def signals_between_calls() -> Iterator[None]:
    """In the body, call the handlers of signals only while HDF5 calls no method of a `PositionedFile`.

    Python calls them at the beginning of the next Python function, which is such a method if the signal came
    while HDF5 was at work. HDF5 may lose the exception of a handler and continue with bytes that were never
    written, h5py may replace it, and the file may crash the process when it is closed. So the signal is sent
    again a little later. So it is in the callbacks of weak references to objects of h5py, where Python drops
    exceptions.
    """
    handlers: dict[int, Any] = {}
    waiting: list[threading.Timer] = []

    def handle(number: int, frame: FrameType | None) -> None:
        caller = frame
        while caller is not None and not _loses_exceptions(caller):
            caller = caller.f_back
        if caller is None:
            handlers[number](number, frame)
            return
        waiting.append(threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number)))
        waiting[-1].start()

    if threading.current_thread() is threading.main_thread():
        handlers = {number: old for number in _SIGNALS if callable(old := signal.getsignal(number))}
        for number in handlers:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in handlers.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, old)
        for timer in waiting:
            if timer.is_alive():
                timer.cancel()
                os.kill(*timer.args)


def _loses_exceptions(frame: FrameType) -> bool:
    is_weakref = frame.f_globals.get("__name__") == "weakref"
    return is_weakref or isinstance(frame.f_locals.get("self"), PositionedFile)


class PositionedFile(io.RawIOBase):
    """Common part of file objects with their own position.

    The position of a descriptor would be shared with a forked child.
    """

    _position = 0
    _placeholder = 0
    _placed: list[int]

    @contextlib.contextmanager
    def placing(self, placeholder: Any) -> Iterator[list[int]]:
        """In the body, record the offsets of writes of a buffer instead of writing it; yield the offsets.

        For HDF5, which allocates a chunk only when it writes it: other code then writes the bytes.
        """
        self._placeholder, self._placed = _address(placeholder), []
        try:
            yield self._placed
        finally:
            self._placeholder = 0

    def _is_placed(self, data: Any) -> bool:
        """Record the position of a write of the buffer of `placing`; return whether it is one."""
        is_placed = self._placeholder != 0 and _address(data) == self._placeholder
        if is_placed:
            self._placed.append(self._position)
        return is_placed

    def readable(self) -> bool:
        """Return True: HDF5 reads back what it wrote."""
        return True

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move the position."""
        if whence == 1:
            offset += self._position
        elif whence == 2:
            offset += self._end_bytes()
        if offset < 0:
            raise ValueError(f"offset {offset} is not valid: must be 0 or more")
        self._position = offset
        return offset

    def readinto(self, buffer: Any) -> int:
        """Read at the position into a writable buffer; past the end there are zeros.

        HDF5 expects zeros there, for instance where a write failed. h5py ignores the count of bytes, so HDF5
        uses the whole buffer: it would take what memory held before for references to old text, fail to free
        that text, and crash while it handles this error.
        """
        with memoryview(buffer) as view, view.cast("B") as target:
            size = len(target)
            count = self._read(target)
            target[count:] = bytes(size - count)
        self._position += size
        return size

    def _read(self, target: memoryview) -> int:
        """Read at the position; return how many bytes there are."""
        raise NotImplementedError

    def _end_bytes(self) -> int:
        """Return the size of the file in bytes."""
        raise NotImplementedError


def _address(data: Any) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(data))
    except (TypeError, ValueError):  # empty, or not writable
        return -1
