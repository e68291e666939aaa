"""Checks of whole files in threads, with progress; a check ends when no page asks for it."""

from __future__ import annotations

import threading
import time

from shardkeep.errors import ShardkeepError
from shardkeep.jobs.salvage.job import SalvageJob
from shardkeep.jobs.salvage.report import RepairedFile
from shardkeep.viewer.data.record_file import version_of

__all__ = ["Check", "check_of"]

# A page asks twice a second; a background tab does so once a minute at least.
_FORGOTTEN_S = 90.0
_MOST_CHECKS = 32


class Check:
    """A check of one version of a TFRecord file; it begins at once.

    Parameters
    ----------
    path : str
    size_bytes : int

    Attributes
    ----------
    done_bytes : int
        Number of bytes that were checked.
    result : RepairedFile or None
        Whole, repairable and lost ranges; None until the check is done, or if it failed.
    error : str
        The reason why it failed.
    """

    def __init__(self, path: str, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.done_bytes = 0
        self.result: RepairedFile | None = None
        self.error = ""
        self._path = path
        self._asked_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="shardkeep-check", daemon=True)
        self._thread.start()

    def ask(self, wait_s: float = 0.0) -> None:
        """Note that a page needs the result, and wait for it for a while."""
        self._asked_s = time.monotonic()
        self._thread.join(wait_s)

    @property
    def is_done(self) -> bool:
        """True if there is a result or an error."""
        return self.result is not None or bool(self.error)

    def _run(self) -> None:
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


def check_of(path: str, *, begin: bool) -> Check | None:
    """Return the check of the present version of a file; None if there is none and `begin` is false."""
    version = version_of(path)
    with _lock:
        found = _checks.get(version)
        if found is not None and found.is_done and found.result is None and begin:
            found = None  # it failed: try again
        if found is None and begin:
            found = _checks[version] = Check(path, version[2])
            while len(_checks) > _MOST_CHECKS:
                del _checks[next(iter(_checks))]
        return found


_checks: dict[tuple[str, int, int, int], Check] = {}
_lock = threading.Lock()
