"""Writers that are dropped without `close`: their records are reported, and no file of them stays.

A writer publishes at `close`, so one that is only dropped, or still open when the interpreter exits, would
lose its records silently, and leave its lock file. A forked child has copies of its parent's writers, and
neither reports nor removes anything when it drops them. ``multiprocessing`` ends its forked children with
``os._exit``, which skips `atexit`; it calls its own finalizers.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import weakref

from shardkeep.errors import ShardkeepError
from shardkeep.files.owner import OwnProcess
from shardkeep.files.user_warning import warn_user

__all__ = ["ReportedWriter", "describe_loss"]

# Before multiprocessing removes its temporary folders (-100).
_PRIORITY = 0


class ReportedWriter:
    """Base class of a writer that is aborted with a `RuntimeWarning` if it is dropped while it is open."""

    _process: OwnProcess
    _is_open = False

    def abort(self) -> None:
        """End the writer without publishing."""
        raise NotImplementedError

    def _loss(self) -> str:
        """Describe the end of this writer without `close`, for a message."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Mark the writer open, at the end of its `__init__`."""
        global _registered_pid
        self._is_open = True
        _open_writers.add(self)
        if _registered_pid != os.getpid() and _is_multiprocessing_child():
            from multiprocessing.util import Finalize

            Finalize(None, _drop_all, exitpriority=_PRIORITY)
            _registered_pid = os.getpid()

    def _finished(self) -> None:
        """Mark the writer closed, before any step of its end."""
        self._is_open = False
        _open_writers.discard(self)

    def _drop_and_report(self) -> str | None:
        message = None if self._process.is_forked else self._loss()
        with contextlib.suppress(ShardkeepError, OSError):
            self.abort()
        return message

    def __del__(self) -> None:
        if self._is_open:
            message = self._drop_and_report()
            if message is not None:
                warn_user(message)


def describe_loss(name: str, records: int, *, published: bool) -> str:
    """Return the message about a writer without `close`.

    Parameters
    ----------
    name : str
        Path or pattern.
    records : int
        Number of records that were written.
    published : bool
        True if the file would have appeared at `close`; False if the records are in it already.
    """
    if published:
        end = f"so it does not appear (lost records: {records:,})"
    else:
        end = f"so a failed write would not be reported (appended records: {records:,})"
    return f"{name!r} was never closed, {end}; use the writer in a with statement, or call close()"


def _is_multiprocessing_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


_registered_pid = 0
_open_writers: weakref.WeakSet[ReportedWriter] = weakref.WeakSet()


@atexit.register
def _drop_all() -> None:
    messages = [one._drop_and_report() for one in list(_open_writers)]
    if not hasattr(sys, "last_value"):  # a program that ended by an error has printed it
        for message in filter(None, messages):
            warn_user(message)
