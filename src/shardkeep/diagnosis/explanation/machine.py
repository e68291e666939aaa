"""Facts of this machine for the texts of the knowledge base."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.kernel import Kernel
from shardkeep.files.locks.mounts import mount_of

__all__ = ["Facts"]

_ENOUGH_DESCRIPTORS = 65_536


class Facts:
    """Values of the placeholders for `str.format_map`, found out when they are asked for.

    Parameters
    ----------
    path : str or None
        First path of the log that exists here. Without one, ``{path}`` becomes "PATH", and facts of a file
        system are those of the working directory.

    Notes
    -----
    The placeholders are the keys of ``_FACTS``, and ``{version_h5py}`` for any distribution.

    Examples
    --------
    >>> "shardkeep verify {path}".format_map(Facts(None))
    'shardkeep verify PATH'
    """

    def __init__(self, path: str | None) -> None:
        self._path = path

    def __getitem__(self, name: str) -> str:
        if name.startswith("version_"):
            return _version(name.removeprefix("version_"))
        return _FACTS[name](self._path)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _limit(kind: int) -> int:
    value = resource.getrlimit(resource.RLIMIT_NOFILE)[kind]
    return value if value != resource.RLIM_INFINITY else _ENOUGH_DESCRIPTORS


def _file_system(path: str | None) -> str:
    try:
        mount = mount_of(path or os.curdir)
    except OSError:
        return "unknown"
    return mount.kind if mount is not None else "unknown"


def _free(path: str | None) -> str:
    try:
        usage = shutil.disk_usage(path or os.curdir)
    except OSError:
        return "unknown"
    return f"{usage.free / 1e9:.1f} GB of {usage.total / 1e9:.1f} GB"


def _free_inodes(path: str | None) -> str:
    try:
        status = os.statvfs(path or os.curdir)
    except OSError:
        return "unknown"
    # Btrfs and some network file systems have no fixed number of inodes.
    return f"{status.f_favail:,} of {status.f_files:,}" if status.f_files else "not limited"


def _setting(name: str) -> str:
    return Kernel().setting(name) or "unknown"


_FACTS: dict[str, Callable[[str | None], str]] = {
    "path": lambda path: as_argument(path) if path is not None else "PATH",
    "soft_limit": lambda _: f"{_limit(0):,}",
    "hard_limit": lambda _: f"{_limit(1):,}",
    "wanted_limit": lambda _: str(min(_limit(1), _ENOUGH_DESCRIPTORS)),
    "file_system": _file_system,
    "free_space": _free,
    "free_inodes": _free_inodes,
    "free_shm": lambda _: _free("/dev/shm"),
    "free_tmp": lambda _: _free("/tmp"),
    "max_map_count": lambda _: _setting("vm/max_map_count"),
    "max_inotify_instances": lambda _: _setting("fs/inotify/max_user_instances"),
    "max_inotify_watches": lambda _: _setting("fs/inotify/max_user_watches"),
    "max_files": lambda _: _setting("fs/file-max"),
    "locking_variable": lambda _: os.environ.get("HDF5_USE_FILE_LOCKING", "not set"),
}
