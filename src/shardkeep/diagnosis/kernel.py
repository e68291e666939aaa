"""Settings of the kernel, and of the container or job that limits this process.

All are read below one root, so that tests can describe another machine.
"""

from __future__ import annotations

import os

__all__ = ["Kernel"]


class Kernel:
    """Files in ``/proc`` and ``/sys`` with settings and limits.

    Parameters
    ----------
    root : str
        Folder that stands for ``/``.

    Examples
    --------
    >>> Kernel("/nowhere").setting("vm/max_map_count") is None
    True
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root

    def text(self, path: str) -> str | None:
        """Return the text of a file below the root without white space at its ends; None if not readable."""
        try:
            with open(os.path.join(self._root, path), encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return None

    def has(self, path: str) -> bool:
        """Return True if a file below the root exists."""
        return os.path.exists(os.path.join(self._root, path))

    def setting(self, name: str) -> str | None:
        """Return a setting, such as "vm/max_map_count", as `sysctl` shows it; None if there is none."""
        return self.text(f"proc/sys/{name}")
