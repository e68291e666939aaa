"""Steps of the publication of one file, for `shardkeep.files.publish`."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import stat
from collections.abc import Sequence
from typing import Any

from shardkeep.errors import ExistsError, NotFoundError, PlanError
from shardkeep.files import leftovers
from shardkeep.files.durable import durability_error, durably
from shardkeep.files.kinds.special import refuse_mode, refuse_special
from shardkeep.files.temporary_file import TemporaryFile

__all__ = ["Pending", "place_all"]

# Errors of link(2) on file systems without hard links (vfat: EPERM; FUSE: ENOSYS; …).
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NO_RENAME_FLAGS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_RENAME_NOREPLACE = 1


class Pending:
    """A file that has a temporary name, and may have its final one.

    Parameters
    ----------
    path : str
        The final name. If it is a symbolic link and may be replaced, its target is replaced.
    replace : bool
        True if a file of that name may be replaced.
    durable : bool
        True to sync file and folder.
    by_name : bool
        True if other code opens the temporary file by its name, and may replace it.
    sidecar_mode : int, optional
        Permissions of a sidecar (`shardkeep.files.sidecar`). A link of its name is replaced, not followed, no
        attribute of an old file is kept, and the old file gets no second name.
    within : list, optional
        The list that the caller undoes; this object adds itself before it creates the file, so that a signal
        at any instant leaves no file.
    """

    def __init__(
        self,
        path: str,
        *,
        replace: bool,
        durable: bool,
        by_name: bool = False,
        sidecar_mode: int | None = None,
        within: list[Any] | None = None,
    ) -> None:
        self.path = path
        self._by_name = by_name
        self._replace = replace
        self._durable = durable
        self._is_sidecar = sidecar_mode is not None
        self._backup: str | None = None
        self._placed = False
        follows = replace and not self._is_sidecar
        real = os.path.realpath(path) if follows and os.path.islink(path) else path
        self.folder, self._name = os.path.split(real)
        self.folder = self.folder or "."
        if not self._name:
            raise PlanError(f"{path!r} is a folder: pass the path of the file to write", path=path)
        if not self._is_sidecar:
            refuse_special(path)
        self._folder_fd = self._open_folder()
        fd = -1
        self.temporary = leftovers.temporary_name(self._name)
        try:
            old = self._check_old()
            leftovers.sweep(self.folder)
            if within is not None:
                within.append(self)
            with durably("create a file for", path):
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                mode = _permissions(old) if sidecar_mode is None else sidecar_mode
                fd = os.open(self.temporary, flags, mode, dir_fd=self._folder_fd)
                if sidecar_mode is None and old is not None and _is_of_this_user(old):
                    os.fchmod(fd, stat.S_IMODE(old.st_mode))
            if not by_name:  # h5py takes the same lock itself
                leftovers.mark_alive(fd)
            self.file = TemporaryFile(fd, os.path.join(self.folder, self.temporary), path)
        except BaseException:
            if within is not None and self in within:
                within.remove(self)
            if fd >= 0:
                os.close(fd)
            self._unlink(self.temporary)  # a signal may have come before `fd` was set
            os.close(self._folder_fd)
            raise

    def rename(self, path: str) -> None:
        """Replace the final name by another one in the same folder."""
        self.path, self._name = path, os.path.basename(path)

    def seal(self) -> None:
        """Check that every byte was written, and sync the file."""
        self.file.raise_failure()
        if self._by_name:
            self._reopen()
        if self._durable:
            with durably("sync", self.path):
                os.fsync(self.file.fileno())
        else:  # NFS reports a full disk or quota when any descriptor of the file is closed
            with durably("write", self.path):
                os.close(os.dup(self.file.fileno()))

    def place(self) -> None:
        """Give the file its final name."""
        with durably("give the final name to", self.path):
            if self._replace:
                self._rename_over()
            else:
                self._claim_name()

    def sync_folder(self) -> None:
        """Make the names durable."""
        if self._durable:
            with durably("sync the folder of", self.path):
                os.fsync(self._folder_fd)

    def forget_old(self) -> None:
        """Remove the second name of the replaced file, after the new one is durable."""
        if self._backup is not None:
            self._unlink(self._backup)

    def undo(self) -> None:
        """Undo all steps so far, and restore the old file, if any."""
        if self._backup is not None:
            with contextlib.suppress(OSError):
                os.rename(self._backup, self._name, src_dir_fd=self._folder_fd, dst_dir_fd=self._folder_fd)
        elif self._placed and self._is_ours(self._name):
            self._unlink(self._name)
        self._unlink(self.temporary)

    def close(self) -> None:
        """Close the descriptors, each once; an error of close(2) is ignored, see `TemporaryFile.release`."""
        folder_fd, self._folder_fd = self._folder_fd, -1
        self.file.release()
        if folder_fd >= 0:
            with contextlib.suppress(OSError):
                os.close(folder_fd)

    def _open_folder(self) -> int:
        with durably("open the folder of", self.path):
            try:
                return os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                message = f"cannot write {self.path!r}: there is no folder {self.folder!r}; create it first"
                raise NotFoundError(message, path=self.path) from None

    def _reopen(self) -> None:
        # The writer may have replaced the empty file by another one.
        with durably("read back", self.path):
            fd = leftovers.open_temporary(self.temporary, os.O_RDWR, folder_fd=self._folder_fd)
        self.file.release()
        self.file = TemporaryFile(fd, self.file.name, self.path)

    def _check_old(self) -> os.stat_result | None:
        try:
            old = os.stat(self._name, dir_fd=self._folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise durability_error("inspect", self.path, error) from error
        if not self._is_sidecar or stat.S_ISDIR(old.st_mode):
            refuse_mode(self.path, old.st_mode)
        if not self._replace:
            raise self._taken()
        return old

    def _taken(self) -> ExistsError:
        message = f'{self.path!r} exists: choose another name, or allow exists="replace"'
        return ExistsError(message, path=self.path)

    def _claim_name(self) -> None:
        fd = self._folder_fd
        try:
            os.link(self.temporary, self._name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
        except FileExistsError:
            # NFS repeats a request whose answer was lost: the name may come from this process.
            if not self._is_ours(self._name):
                raise self._taken() from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._claim_without_links()
            return
        self._placed = True
        os.unlink(self.temporary, dir_fd=fd)

    def _claim_without_links(self) -> None:
        fd = self._folder_fd
        try:
            _rename_noreplace(fd, self.temporary, self._name)
        except FileExistsError:
            raise self._taken() from None
        except OSError as error:
            if error.errno not in _NO_RENAME_FLAGS:
                raise
            # Exclusive on every file system. After a kill at this point the file stays empty.
            try:
                claim = os.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, dir_fd=fd)
            except FileExistsError:
                raise self._taken() from None
            os.close(claim)
            try:
                os.rename(self.temporary, self._name, src_dir_fd=fd, dst_dir_fd=fd)
            except OSError:
                self._unlink(self._name)
                raise
        self._placed = True

    def _rename_over(self) -> None:
        fd = self._folder_fd
        self._check_old()
        backup = leftovers.temporary_name(self._name)
        try:
            if self._is_sidecar:
                raise FileNotFoundError  # readers of a sidecar refuse one with two names
            os.link(self._name, backup, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
            self._backup = backup
        except OSError:
            # No old file, or no hard links: then a failed folder sync after the rename cannot be undone.
            self._backup = None
        try:
            os.rename(self.temporary, self._name, src_dir_fd=fd, dst_dir_fd=fd)
        except OSError:
            if self._backup is not None:
                self._unlink(self._backup)
                self._backup = None
            raise
        self._placed = True

    def _is_ours(self, name: str) -> bool:
        try:
            there = os.stat(name, dir_fd=self._folder_fd, follow_symlinks=False)
            return os.path.samestat(there, os.fstat(self.file.fileno()))
        except (OSError, ValueError):  # ValueError: closed
            return False

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._folder_fd)


def place_all(pending: Sequence[Pending]) -> None:
    """Give sealed files their final names, in this order, and make the names durable."""
    for one in pending:
        one.place()
    for one in {one.folder: one for one in pending}.values():
        one.sync_folder()
    for one in pending:
        one.forget_old()


def _permissions(old: os.stat_result | None) -> int:
    """Return the permissions for a new file, before the umask."""
    # At most the permissions of the old file; the umask applies too, since another user may have set them.
    return 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o666 | 0o600


def _is_of_this_user(old: os.stat_result) -> bool:
    return stat.S_ISREG(old.st_mode) and old.st_uid == os.geteuid()


@functools.lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _rename_noreplace(folder_fd: int, old: str, new: str) -> None:
    renameat2 = getattr(_libc(), "renameat2", None)  # glibc 2.28, musl 1.2.6
    if renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    names = os.fsencode(old), os.fsencode(new)
    if renameat2(folder_fd, names[0], folder_fd, names[1], _RENAME_NOREPLACE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), new)
