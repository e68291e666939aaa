"""Exit codes of the command; the source of its help, documentation and tests."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit code of the ``shardkeep`` command.

    Each member has a ``meaning``. The ``exit_code`` of an error in `shardkeep.errors` is one of these; a
    command with a report returns `FINDINGS` if the report is not clean.

    Examples
    --------
    >>> print(int(ExitCode.LOCKED), ExitCode.LOCKED.meaning)
    11 another process holds the file
    """

    meaning: str

    def __new__(cls, code: int, meaning: str = "") -> ExitCode:
        """Create the member of a code with its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    CLEAN = 0, "success, without findings"
    BUG = 1, "a bug of Shardkeep itself: please report it"
    USAGE = 2, "the call is not possible: a wrong argument, a schema, missing rights, an output that exists"
    FINDINGS = 3, "damage, lost or repeated rows, a failed audit or check"
    NOT_FOUND = 10, "a file or folder does not exist, or a pattern matches nothing"
    LOCKED = 11, "another process holds the file"
    HANGUP = 129, "stopped by SIGHUP: the terminal was closed"
    INTERRUPTED = 130, "interrupted by Ctrl-C"
    TERMINATED = 143, "stopped by SIGTERM"
