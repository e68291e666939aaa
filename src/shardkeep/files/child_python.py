"""`child_python`: a new interpreter that runs a part of Shardkeep, the very one that runs here."""

from __future__ import annotations

import os
import sys

__all__ = ["child_python"]


def child_python(module: str, call: str) -> list[str]:
    """Return the command line of a new interpreter that ends with what a function of a module returns.

    Parameters
    ----------
    module, call : str
        The module, and a call of a function in it.

    Notes
    -----
    Modules come from where this process has them. ``python -c`` and ``python -m`` would look into the
    current folder first, and a ``queue.py`` of somebody's own there would be taken for Python's.

    Examples
    --------
    >>> import subprocess
    >>> subprocess.run(child_python("operator", "add(1, 2)"), check=False).returncode
    3
    """
    folders = [os.path.abspath(one) for one in sys.path]
    # `sys` is built in: nothing on the path can be taken for it.
    program = f"import sys; sys.path[:] = {folders!r}; import {module}; sys.exit({module}.{call})"
    return [sys.executable, "-c", program]
