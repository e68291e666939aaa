"""The delivery of rows whose client was dropped, or whose process ends.

The sender of a dropped client continues in the background. At the end of the process each sender gets the
`timeout_s` of its client to deliver the rest, all of them at once. ``multiprocessing`` ends its forked
children with ``os._exit``, which skips `atexit`; it calls its own finalizers.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref

from shardkeep.collector.client.sender import Sender

__all__ = ["finish", "register"]

# Before the feeder threads of queues (-5) and temporary folders (-100).
_PRIORITY = 5


def register(sender: Sender) -> None:
    """Have a sender deliver its rows at the end of this process."""
    global _registered_pid
    # The thread keeps its sender alive, also without a client.
    _senders.add(sender)
    if _registered_pid != os.getpid() and "multiprocessing.util" in sys.modules:
        from multiprocessing.util import Finalize

        Finalize(None, _finish_all, exitpriority=_PRIORITY)
        _registered_pid = os.getpid()


def finish(sender: Sender) -> None:
    """Wait for a sender that was stopped, and report what it could not deliver."""
    if sender.join():
        _senders.discard(sender)
    sender.state.report_losses()


@atexit.register
def _finish_all() -> None:
    senders = list(_senders)
    for sender in senders:
        sender.stop(sender.state.timeout_s)
    for sender in senders:
        finish(sender)


def _after_fork() -> None:
    # The sockets of a parent process are never closed in a child: ZeroMQ's threads are not there.
    _inherited.extend(_senders)
    _senders.clear()


_registered_pid = 0
_senders: weakref.WeakSet[Sender] = weakref.WeakSet()
_inherited: list[Sender] = []
os.register_at_fork(after_in_child=_after_fork)
