"""The exit codes of the command: the one table that help, documentation and tests are made from."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """What the ``shardkeep`` command returns to the shell.

    Each member carries its ``meaning``. An error of the tree in `shardkeep.errors` names its code
    in ``exit_code``; a command that reports returns `FINDINGS` when the report is not clean.

    Examples
    --------
    >>> print(int(ExitCode.LOCKED), ExitCode.LOCKED.meaning)
    11 another process holds the file
    """

    meaning: str

    def __new__(cls, code: int, meaning: str = "") -> ExitCode:
        """Make the member of `code` that means `meaning`."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    CLEAN = 0, "done, and nothing to complain about"
    BUG = 1, "a bug of Shardkeep itself: please report it"
    USAGE = 2, "the call cannot be carried out as given: an argument, a schema, rights, an output that exists"
    FINDINGS = 3, "damage, lost or repeated rows, a failed audit or check"
    NOT_FOUND = 10, "a file, a folder or what a pattern should match is not there"
    LOCKED = 11, "another process holds the file"
    INTERRUPTED = 130, "interrupted by Ctrl-C"
