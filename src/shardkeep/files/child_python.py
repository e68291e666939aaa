"""New interpreters that run the same Shardkeep as this process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

__all__ = ["child_python", "read_line"]


def child_python(module: str, call: str) -> list[str]:
    """Return the command line of a new interpreter that exits with the result of a function.

    Parameters
    ----------
    module, call : str
        The module, and a call of a function in it.

    Notes
    -----
    Modules are imported from the same folders as in this process. ``python -c`` and ``python -m`` would
    search the current folder first, and import a user's ``queue.py`` there instead of Python's.

    Examples
    --------
    >>> import subprocess
    >>> subprocess.run(child_python("operator", "add(1, 2)"), check=False).returncode
    3
    """
    folders = [os.path.abspath(one) for one in sys.path]
    # `sys` is built in: no file on the path can replace it.
    program = f"import sys; sys.path[:] = {folders!r}; import {module}; sys.exit({module}.{call})"
    return [sys.executable, "-c", program]


def read_line(child: subprocess.Popen[str], silent_s: float) -> str:
    """Return the next line of a child; empty if it ended, or was killed since it wrote none in time."""
    assert child.stdout is not None
    alarm = threading.Timer(silent_s, child.kill)
    alarm.daemon = True
    alarm.start()
    line = child.stdout.readline()
    alarm.cancel()
    return line
