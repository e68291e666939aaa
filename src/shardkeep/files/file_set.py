"""Sets of many files that are published together, with few open descriptors.

`shardkeep.files.publish.publish_set` holds every file open until the end, which suits a few files. A set of a
thousand shards would need a thousand descriptors. Here each file has its temporary name from the start, but
stays closed: a writer opens it by that name, in any process of this host (or of another one that sees the
same folder), in any order. At the end each file is opened again to be synced, and then all get their names,
as in `publish_set`.

The disadvantage: the lock by which `shardkeep.files.leftovers` recognises a temporary file in use ends with
the descriptor. For other processes of this kernel the name is sufficient. A container of the same host name
but another process-id namespace could take a file that was closed for a minute for a leftover; then the set
fails, and none of its files appears.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from shardkeep.errors import DurabilityError, LockError, PlanError
from shardkeep.files.durable import durably
from shardkeep.files.kinds.urls import is_url
from shardkeep.files.leftovers import open_temporary
from shardkeep.files.pending import Pending, place_all
from shardkeep.files.publish import Exists
from shardkeep.files.temporary_file import TemporaryFile
from shardkeep.files.threads.tasks import Tasks
from shardkeep.progress import Progress

__all__ = ["FileSet"]

_TOGETHER = 4


class FileSet:
    """Files that appear together, or not at all; a ``with`` ends in `publish`, or after an error in `undo`.

    Parameters
    ----------
    exists : {"fail", "replace"}
        What to do if a final name is taken.

    Raises
    ------
    ExistsError, NotFoundError, DurabilityError
        As in `shardkeep.files.publish`, from `add` and at the end.

    Notes
    -----
    After a crash the guarantee is that of `publish_set`: every file with a final name is whole and synced,
    and if the file that was added last exists, the set is complete.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with FileSet() as files:
    ...     for name in ("a", "b"):
    ...         number = files.add(os.path.join(folder, name))
    ...         with open(files.temporary(number), "wb") as file:
    ...             _ = file.write(b"whole")
    ...     os.path.exists(os.path.join(folder, "a"))
    False
    >>> sorted(os.listdir(folder))
    ['a', 'b']
    """

    def __init__(self, *, exists: Exists = "fail") -> None:
        if exists not in ("fail", "replace"):
            raise PlanError(f'exists={exists!r} is not valid: use "fail" or "replace"')
        self._replace = exists == "replace"
        self._pending: list[Any] = []
        self._pid = os.getpid()
        # Absolute, since the process may change its directory.
        self._base = os.getcwd()

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def paths(self) -> list[str]:
        """Final paths, in the order of `add`."""
        return [one.path for one in self._pending]

    def add(self, path: str) -> int:
        """Create an empty temporary file for `path` and return its number in the set."""
        if is_url(path):
            from shardkeep.files.remote.pending import RemotePending

            RemotePending(path, replace=self._replace, within=self._pending, local=_ClosedPending)
            return len(self._pending) - 1
        there = path if os.getcwd() == self._base else os.path.join(self._base, path)
        _ClosedPending(there, replace=self._replace, within=self._pending)
        self._pending[-1].path = path
        return len(self._pending) - 1

    def adopt(self, path: str, written: str) -> int:
        """Add a file that was written elsewhere, also by another process, and return its number.

        Parameters
        ----------
        path : str
            The final path.
        written : str
            Path of the closed file, in the same file system; it is moved.

        Raises
        ------
        ExistsError, NotFoundError, DurabilityError
            As `add`; or the file cannot be moved.
        """
        number = self.add(path)
        self._pending[number].take(written)
        return number

    def temporary(self, number: int) -> str:
        """Return the temporary name of a file of the set."""
        return str(self._pending[number].file.name)

    def rename(self, number: int, path: str) -> None:
        """Replace the final name by another one in the same folder."""
        one = self._pending[number]
        if os.path.dirname(path) != os.path.dirname(one.path):
            raise PlanError(f"{path!r}: the final name of an open file must be in the folder of {one.path!r}")
        one.rename(path)

    def publish(self, order: Sequence[int] | None = None, *, progress: Progress | None = None) -> None:
        """Sync all files and rename them, in this order (that of `add` by default).

        `progress` is called as ``progress(synced_files, all_files)``.

        Raises
        ------
        LockError
            In a forked child: the files are the parent's.
        """
        if os.getpid() != self._pid:
            raise LockError(
                "a forked child cannot publish a set of files; publish it in the process that created it"
            )
        pending = self._pending if order is None else [self._pending[number] for number in order]
        if len({os.path.abspath(one.path) for one in pending}) < len(pending):
            raise PlanError("a set of files to publish names one path twice: pass different paths")
        _seal(pending, progress)
        place_all(pending)
        self._pending = []

    def undo(self) -> None:
        """Remove all files; a forked child leaves those of its parent."""
        if os.getpid() == self._pid:
            for one in reversed(self._pending):
                one.undo()
        self._pending = []

    def __enter__(self) -> FileSet:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if error is None and os.getpid() == self._pid:
                self.publish()
        finally:
            self.undo()


def _seal(pending: list[Any], progress: Progress | None) -> None:
    report = progress or (lambda _done, _total: None)
    if len(pending) < _TOGETHER:
        for number, one in enumerate(pending, 1):
            one.seal()
            report(number, len(pending))
        return
    # A journal combines the syncs of several threads: three times as fast for small files.
    with Tasks[None](_TOGETHER, "shardkeep-sync") as tasks:
        for number, _ in enumerate(tasks.run((one.seal,) for one in pending), 1):
            report(number, len(pending))


class _ClosedPending(Pending):
    """A pending file without open descriptors between its steps."""

    def __init__(self, path: str, *, replace: bool, within: list[Any], durable: bool = True) -> None:
        super().__init__(path, replace=replace, durable=durable, within=within)
        made = os.fstat(self.file.fileno())
        self._identity = made.st_dev, made.st_ino
        # Between the steps the folder is opened by its name, which must not depend on the current directory.
        self.folder = os.path.abspath(self.folder)
        self.file.name = os.path.join(self.folder, self.temporary)
        self._release_descriptors()

    def take(self, written: str) -> None:
        with durably("move the content of", self.path):
            found = os.lstat(written)
            os.rename(written, self.file.name)
        self._identity = found.st_dev, found.st_ino

    def seal(self) -> None:
        with self._opened():
            with durably("read back", self.path):
                fd = open_temporary(self.temporary, os.O_RDWR, folder_fd=self._folder_fd)
            self.file = TemporaryFile(fd, self.file.name, self.path)
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) != self._identity:
                raise DurabilityError(f"{self.path!r}: its temporary file was replaced", path=self.path)
            super().seal()

    def place(self) -> None:
        with self._opened():
            super().place()

    def sync_folder(self) -> None:
        with self._opened():
            super().sync_folder()

    def forget_old(self) -> None:
        if self._backup is not None:
            with self._opened():
                super().forget_old()

    def undo(self) -> None:
        # If the folder was removed, so were its files.
        with contextlib.suppress(OSError), self._opened():
            super().undo()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[None]:
        self._folder_fd = self._open_folder()
        try:
            yield
        finally:
            self._release_descriptors()

    def _release_descriptors(self) -> None:
        self.file.release()
        fd, self._folder_fd = self._folder_fd, -1
        if fd >= 0:
            os.close(fd)

    def _is_ours(self, name: str) -> bool:
        try:
            there = os.stat(name, dir_fd=self._folder_fd, follow_symlinks=False)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == self._identity
