"""Checks of whole files in threads, with progress; a check ends when no page asks for it."""

from __future__ import annotations

import time

from shardkeep.errors import ShardkeepError
from shardkeep.jobs.salvage.job import SalvageJob
from shardkeep.jobs.salvage.report import RepairedFile
from shardkeep.viewer.kept import Background, Recent, Version, version_of

__all__ = ["Check", "check_of"]

# A page asks twice a second; a background tab does so once a minute at least.
_FORGOTTEN_S = 90.0
_MOST_CHECKS = 32


class Check:
    """A check of one version of a TFRecord file.

    Attributes
    ----------
    is_begun : bool
    size_bytes : int
        Size of the file.
    done_bytes : int
        Number of bytes that were checked.
    result : RepairedFile or None
        Whole, repairable and lost ranges; None until the check is done, or if it failed.
    error : str
        The reason why it failed.
    """

    def __init__(self, version: Version) -> None:
        self.is_begun = False
        self.size_bytes = version.size_bytes
        self.done_bytes = 0
        self.result: RepairedFile | None = None
        self.error = ""
        self._path = version.path
        self._asked_s = 0.0
        self._checking = Background()

    def ask(self, wait_s: float, *, begin: bool) -> None:
        """Note that a page needs the result, and wait for it for a while.

        Parameters
        ----------
        wait_s : float
        begin : bool
            Begin a check that has not begun, or has failed.
        """
        self._asked_s = time.monotonic()
        if self.result is None and (begin or (self.is_begun and not self.error)):
            self.is_begun = True
            self._checking.run(self._run, wait_s)

    @property
    def is_done(self) -> bool:
        """True if there is a result or an error."""
        return self.result is not None or bool(self.error)

    def _run(self) -> None:
        self.done_bytes, self.error = 0, ""
        try:
            self.result = SalvageJob(self._path, "tfrecord", self.size_bytes).run("fail", self._tick)
        except _ForgottenError:
            self.error = "the check was ended, because its page was closed"
        except (ShardkeepError, OSError) as error:
            self.error = str(error)

    def _tick(self, count: int) -> None:
        self.done_bytes += count
        if time.monotonic() - self._asked_s > _FORGOTTEN_S:
            raise _ForgottenError


class _ForgottenError(Exception):
    pass


def check_of(path: str) -> Check:
    """Return the check of the present version of a file."""
    return _recent.of(version_of(path))


_recent = Recent(Check, _MOST_CHECKS)
