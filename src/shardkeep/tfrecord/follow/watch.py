"""A wait until a file may have changed, by inotify or by polling.

inotify reports a change immediately, but only changes by this machine: on a network file system it reports
nothing about other hosts, without an error. It is therefore used only on file systems that are known to be
local, and even there the file is also checked every second; a missed event causes a delay, never a lost
record. Everywhere else, and where the user's inotify limits are exhausted, the pause between two checks grows
while nothing changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import time

__all__ = ["Watch"]

_LONGEST_SILENCE_S = 1.0
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5

# Types of statfs(2). Not in this list: file systems that other hosts can change, and untested ones.
_LOCAL_FILE_SYSTEMS = {
    0xEF53,  # ext2, ext3, ext4
    0x58465342,  # xfs
    0x9123683E,  # btrfs
    0xF2F52010,  # f2fs
    0x2FC12FC1,  # zfs
    0xCA451A4E,  # bcachefs
    0x01021994,  # tmpfs
    0x858458F6,  # ramfs
    0x794C7630,  # overlayfs
}
_STATFS_BYTES = 256  # more than any struct statfs; its first word is the type

_IN_MODIFY = 0x0002
_IN_ATTRIB = 0x0004  # also when a name of the file is removed, by unlink or by a rename over it
_IN_MOVED_TO = 0x0080
_IN_CREATE = 0x0100
_IN_MOVE_SELF = 0x0800
_FILE_EVENTS = _IN_MODIFY | _IN_ATTRIB | _IN_MOVE_SELF
_FOLDER_EVENTS = _IN_CREATE | _IN_MOVED_TO


class Watch:
    """A wait for changes of one path, which need not exist yet.

    Parameters
    ----------
    path : str
        The file; while it does not exist, its folder is watched.
    poll_s : float, optional
        Poll at this interval, without inotify. By default inotify is used where it is reliable, and polling
        elsewhere.

    Notes
    -----
    `wait` may return early and without a change. A watch holds at most one descriptor, which `close` closes.
    After `fork` the child opens its own: parent and child would otherwise take each other's events.
    """

    def __init__(self, path: str, *, poll_s: float | None = None) -> None:
        self._path = path
        self._poll_s = poll_s
        self._pause_s = _FIRST_PAUSE_S
        self._polling = poll_s is not None
        self._fd: int | None = None
        self._pid = os.getpid()

    @property
    def is_notified(self) -> bool:
        """True if inotify reports changes."""
        return self._fd is not None

    def wait(self, timeout_s: float) -> None:
        """Return when the file may have changed, at the latest after `timeout_s` seconds."""
        if self._pid != os.getpid():
            self.close()
            self._pid = os.getpid()
        if self._fd is None and not self._polling and self._arm():
            return  # the caller must first check for changes from before the watch
        if self._fd is None:
            time.sleep(min(timeout_s, self._pause_s if self._poll_s is None else self._poll_s))
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
            return
        events = select.poll()
        events.register(self._fd, select.POLLIN)
        # Rounded up: a timeout of less than a millisecond would spin.
        if events.poll(min(timeout_s, _LONGEST_SILENCE_S) * 1000 + 1):
            with contextlib.suppress(BlockingIOError):
                os.read(self._fd, 1 << 16)

    def calm(self) -> None:
        """Reset the pause to its shortest; called after a change."""
        self._pause_s = _FIRST_PAUSE_S

    def close(self) -> None:
        """Stop watching; the next `wait` watches the file that is at the path then."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _arm(self) -> bool:
        """Watch the file, or its folder; return True on success."""
        target, events = self._path, _FILE_EVENTS
        if not os.path.exists(target):
            target, events = os.path.dirname(target) or ".", _FOLDER_EVENTS
            if not os.path.isdir(target):
                return False  # tried again at the next wait
        if not _is_local(target):
            self._polling = True
            return False
        libc = ctypes.CDLL(None)
        fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if fd < 0:  # fs.inotify.max_user_instances, or no descriptor left
            self._polling = True
            return False
        if libc.inotify_add_watch(fd, os.fsencode(target), events) < 0:
            os.close(fd)
            # Either fs.inotify.max_user_watches is reached, or the target was removed in the meantime.
            self._polling = os.path.exists(target)
            return False
        self._fd = fd
        return True


def _is_local(path: str) -> bool:
    """Return True if all changes of `path` come from this kernel, so that inotify reports them."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "inotify_init1"):
        return False
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        return False
    kind: int = ctypes.c_ulong.from_buffer(buffer).value
    return kind & 0xFFFFFFFF in _LOCAL_FILE_SYSTEMS
