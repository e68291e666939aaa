"""Owner process of a writer: a forked child must not write the buffered data of its parent."""

from __future__ import annotations

import os

from shardkeep.errors import LockError

__all__ = ["OwnProcess"]


class OwnProcess:
    """The process that created an object.

    Checked before a lock is acquired: in a forked child a missing thread may hold it forever.

    Parameters
    ----------
    path : str
        Path of the written file, for the message.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._pid = os.getpid()

    @property
    def is_carried(self) -> bool:
        """True in a forked child."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raise in a forked child.

        Raises
        ------
        LockError
            This is not the process that opened the writer.
        """
        if self.is_carried:
            raise LockError(
                f"{self._path}: a writer cannot be used after fork; open another file in the child",
                path=self._path,
            )
