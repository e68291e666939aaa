"""Steps of the publication of one file, for `shardkeep.files.publish`."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import stat
from collections.abc import Iterator
from typing import Any

from shardkeep.errors import DurabilityError, ExistsError, LockError, NotFoundError, PlanError, ShardkeepError
from shardkeep.files import leftovers
from shardkeep.files.positioned import PositionedFile

__all__ = ["Pending", "TemporaryFile", "durability_error", "durably"]

# Errors of link(2) on file systems without hard links (vfat: EPERM; FUSE: ENOSYS; …).
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NO_RENAME_FLAGS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_RENAME_NOREPLACE = 1

_ADVICE = {
    errno.ENOSPC: "free space on that file system and run it again",
    errno.EDQUOT: "raise the quota or remove files of this user",
    errno.EFBIG: "raise the limit of the file size (ulimit -f)",
    errno.EROFS: "choose a folder on a file system that is mounted writable",
    errno.EACCES: "get write permission there, or choose another folder",
    errno.EPERM: "get write permission there, or choose another folder",
    errno.EIO: "the disk or its network failed: check the kernel's log before you use it again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def durability_error(action: str, path: str, error: OSError) -> DurabilityError:
    """Return the `DurabilityError` for an error of the kernel; `errno` is kept.

    Parameters
    ----------
    action : str
        The failed action, as in "cannot *write*".
    path : str
        The final name, not the temporary one.
    error : OSError
    """
    number = error.errno or 0
    code = errno.errorcode.get(number, f"errno {number}")
    reason = os.strerror(number) if number else str(error)
    advice = _ADVICE.get(number, "look up that error for this file system")
    result = DurabilityError(f"cannot {action} {path!r}: {reason} ({code}); {advice}", path=path)
    result.errno = error.errno
    return result


@contextlib.contextmanager
def durably(action: str, path: str) -> Iterator[None]:
    """Turn any `OSError` of the body into a `DurabilityError` about `path`."""
    try:
        yield
    except ShardkeepError:
        raise
    except OSError as error:
        raise durability_error(action, path, error) from error


class TemporaryFile(PositionedFile):
    """An unbuffered file under its temporary name, safe after ``fork``.

    Every read and write has an explicit offset, so a child cannot move the position of the parent; a write in
    a child raises `LockError` and changes no byte.

    Attributes
    ----------
    name : str
        The temporary path.
    deferred : bool
        If True, the error of a failed write is stored in `failure` instead of raised, and later writes are
        ignored. For callers that do not support an error during a write: HDF5 never closes a file whose flush
        failed.
    failure : ShardkeepError or None
        The first failed write. A file that has one is never published.
    size_bytes : int
        End of the last byte that was written.
    placed : list of int
        Offsets at which `placeholder` would have been written.
    """

    def __init__(self, fd: int, name: str, final: str) -> None:
        self.name = name
        self.deferred = False
        self.failure: ShardkeepError | None = None
        self.size_bytes = 0
        self.placed: list[int] = []
        self._placeholder = 0
        self._final = final
        self._fd = fd
        self._pid = os.getpid()
        self._ignoring = False

    def fileno(self) -> int:
        """Return the descriptor."""
        self._check_open()
        return self._fd

    def _end_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def readinto(self, buffer: Any) -> int:
        """Read at the position into a writable buffer."""
        self._check_open()
        count = os.preadv(self._fd, [buffer], self._position)
        self._position += count
        return count

    def write(self, data: Any) -> int:
        """Write all of `data` at the position.

        Raises
        ------
        DurabilityError
            The write failed (full disk, quota, I/O error).
        LockError
            In a forked child: the file belongs to the parent.
        """
        if self._placeholder and _address(data) == self._placeholder:
            self.placed.append(self._position)
            return self._advance(memoryview(data).nbytes)
        with memoryview(data) as view, view.cast("B") as rest:
            size = len(rest)
            done = 0
            if self._ready():
                try:
                    while done < size:
                        done += os.pwrite(self._fd, rest[done:], self._position + done)
                except OSError as error:
                    self._fail(durability_error("write", self._final, error), error)
        return self._advance(size)

    def truncate(self, size: int | None = None) -> int:
        """Truncate or extend the file."""
        size = self._position if size is None else size
        if self._ready():
            try:
                os.ftruncate(self._fd, size)
            except OSError as error:
                self._fail(durability_error("resize", self._final, error), error)
        return size

    @contextlib.contextmanager
    def placing(self, placeholder: Any) -> Iterator[list[int]]:
        """In the body, record the offsets of writes of a buffer instead of writing it; yield the offsets.

        For HDF5, which allocates a chunk only when it writes it: other code then writes the bytes to
        `fileno`, and passes an error to `fail`.
        """
        self._ready()
        self._placeholder, self.placed = _address(placeholder), []
        try:
            yield self.placed
        finally:
            self._placeholder = 0

    def fail(self, error: OSError) -> None:
        """Record an error of a write by other code."""
        self._fail(durability_error("write", self._final, error), error)

    def ignore(self) -> None:
        """Ignore all later writes, so that data in other buffers does not reach the file."""
        self._ignoring = True

    def release(self) -> None:
        """Close the descriptor; later writes are ignored."""
        self._ignoring = True
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Mark the file closed; the descriptor stays open until the file has been synced and renamed."""
        super().close()

    def _advance(self, size: int) -> int:
        self._position += size
        if self._position > self.size_bytes:
            self.size_bytes = self._position
        return size

    def _check_open(self) -> None:
        if self._fd < 0:
            raise ValueError(f"{self._final!r} is closed for writing")

    def _ready(self) -> bool:
        if self._ignoring:
            return False
        if self._pid != os.getpid():
            message = f"{self._final!r} is being written by process {self._pid}; a forked child cannot"
            self._fail(LockError(f"{message} write to it: open a separate file there", path=self._final))
            return False
        self._check_open()
        return True

    def _fail(self, failure: ShardkeepError, cause: OSError | None = None) -> None:
        self.failure = self.failure or failure
        if not self.deferred:
            raise failure from cause
        self._ignoring = True


def _address(data: Any) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(data))
    except (TypeError, ValueError):  # empty, or not writable
        return -1


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
    """

    def __init__(
        self,
        path: str,
        *,
        replace: bool,
        durable: bool,
        by_name: bool = False,
        sidecar_mode: int | None = None,
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
        self._folder_fd = self._open_folder()
        fd = -1
        try:
            old = self._check_old()
            leftovers.sweep(self.folder)
            self.temporary = leftovers.temporary_name(self._name)
            with durably("create a file for", path):
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                mode = _permissions(old) if sidecar_mode is None else sidecar_mode
                fd = os.open(self.temporary, flags, mode, dir_fd=self._folder_fd)
                if sidecar_mode is None and old is not None and _is_of_this_user(old):
                    os.fchmod(fd, stat.S_IMODE(old.st_mode))
            if not by_name:  # h5py takes the same lock itself
                leftovers.mark_alive(fd)
        except BaseException:
            if fd >= 0:
                os.close(fd)
                self._unlink(self.temporary)
            os.close(self._folder_fd)
            raise
        self.file = TemporaryFile(fd, os.path.join(self.folder, self.temporary), path)

    def rename(self, path: str) -> None:
        """Replace the final name by another one in the same folder."""
        self.path, self._name = path, os.path.basename(path)

    def seal(self) -> None:
        """Check that every byte was written, and sync the file."""
        if self.file.failure is not None:
            raise self.file.failure
        if self._by_name:
            self._reopen()
        if self._durable:
            with durably("sync", self.path):
                os.fsync(self.file.fileno())

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
        """Close the descriptors, each once, even if close(2) fails."""
        folder_fd, self._folder_fd = self._folder_fd, -1
        try:
            self.file.release()
        finally:
            if folder_fd >= 0:
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
        if stat.S_ISDIR(old.st_mode):
            raise ExistsError(f"{self.path!r} is a folder: choose another name", path=self.path)
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
