"""Which process a writer belongs to: a forked child's copy must not write what its parent has buffered."""

from __future__ import annotations

import os

from shardkeep.errors import LockError

__all__ = ["OwnProcess"]


class OwnProcess:
    """Remembers the process that made it.

    To be asked before a lock is taken: in a forked child a thread that is not there may hold it for ever.

    Parameters
    ----------
    path : str
        What is written, for the message.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._pid = os.getpid()

    @property
    def is_carried(self) -> bool:
        """Whether this is a forked child's copy."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Refuse a forked child.

        Raises
        ------
        LockError
            This is not the process that opened the writer.
        """
        if self.is_carried:
            raise LockError(
                f"{self._path}: a writer was carried across fork; open another file in the child",
                path=self._path,
            )
