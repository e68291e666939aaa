"""Settings of the kernel, and of the container or job that limits this process.

All are read below one root, so that tests can describe another machine.
"""

from __future__ import annotations

import os

__all__ = ["Kernel"]

# Version 1 writes the largest number of pages for "no limit".
_UNLIMITED = 1 << 62


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

    def number(self, path: str) -> int | None:
        """Return the first number of a file below the root; None if there is none, as for "max"."""
        words = (self.text(path) or "").split()
        return int(words[0]) if words and words[0].isdecimal() else None

    def meminfo(self, name: str) -> int | None:
        """Return a value of ``/proc/meminfo`` in bytes, such as "MemAvailable"; None if there is none."""
        for line in (self.text("proc/meminfo") or "").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        return None

    def group_folders(self, controller: str) -> list[str]:
        """Return the control groups of this process that can limit `controller`, the innermost first.

        Parameters
        ----------
        controller : str
            "memory", "pids" or "cpu".

        Returns
        -------
        list of str
            Folders below the root, of version 2 or 1 of the kernel's interface.
        """
        for line in (self.text("proc/self/cgroup") or "").splitlines():
            _, names, path = line.split(":", 2)
            if names == "" and self.has("sys/fs/cgroup/cgroup.controllers"):
                top = "sys/fs/cgroup"
            elif controller in names.split(","):
                top = f"sys/fs/cgroup/{controller}"
            else:
                continue
            parts = [part for part in path.split("/") if part not in ("", "..")]
            folders = ["/".join([top, *parts[:length]]) for length in range(len(parts), -1, -1)]
            return [folder for folder in folders if self.has(folder)]
        return []

    def group_limit(self, controller: str, *names: str) -> tuple[int, str] | None:
        """Return the lowest limit of the control groups of this process, and the folder that has it.

        Parameters
        ----------
        controller : str
        *names : str
            Name of the file with the limit, in version 2 and, if it differs, in version 1.
        """
        found = [
            (limit, folder)
            for folder in self.group_folders(controller)
            for name in names
            if (limit := self.number(f"{folder}/{name}")) is not None and limit < _UNLIMITED
        ]
        return min(found, default=None)

    def setting(self, name: str) -> str | None:
        """Return a setting, such as "vm/max_map_count", as `sysctl` shows it; None if there is none."""
        return self.text(f"proc/sys/{name}")
