"""What becomes of rows that are under way when their client is dropped, or its process ends.

The link of a dropped client goes on in the background. At the end of the process every link gets the
time of its client to deliver what is left, all of them at once. ``multiprocessing`` ends its forked
children with ``os._exit``, so that nothing of `atexit` happens there; it has a list of its own.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref

from shardkeep.collector.client.link import Link

__all__ = ["finish", "register"]

# Before the feeder threads of queues (-5) and temporary folders (-100).
_PRIORITY = 5


def register(link: Link) -> None:
    """Have a link deliver at the end of this process."""
    global _listed_in
    # A running thread keeps its link alive, also without a client.
    _links.add(link)
    if _listed_in != os.getpid() and "multiprocessing.util" in sys.modules:
        from multiprocessing.util import Finalize

        Finalize(None, _finish_all, exitpriority=_PRIORITY)
        _listed_in = os.getpid()


def finish(link: Link) -> None:
    """Wait for the end of a link that was told to leave."""
    if link.join():
        _links.discard(link)
    link.tell()


@atexit.register
def _finish_all() -> None:
    links = list(_links)
    for link in links:
        link.leave(link.timeout_s)
    for link in links:
        finish(link)


def _after_fork() -> None:
    # Sockets of a parent process are never closed in a child: their threads are not there.
    _inherited.extend(_links)
    _links.clear()


_listed_in = 0
_links: weakref.WeakSet[Link] = weakref.WeakSet()
_inherited: list[Link] = []
os.register_at_fork(after_in_child=_after_fork)
