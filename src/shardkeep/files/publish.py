"""A file appears under its final name whole and synced, or not at all.

The steps, in order: a temporary file in the same folder; the caller's writes; ``fsync`` of the
file; the final name; ``fsync`` of the folder. Everything up to the last step can fail without a
trace: the temporary file, and the final name if it was given already, are taken back.

**The final name.** ``exists="fail"`` gives it with link(2), which fails if the name is taken: two
processes that race cannot both win, and no old file can be lost. Where a file system has no hard
links, ``renameat2(RENAME_NOREPLACE)`` is used, and where it has neither, the name is claimed with
``O_CREAT | O_EXCL`` before the rename (a kill exactly between the two leaves an empty file).
``exists="replace"`` renames over the old file, which is kept under a second name until the folder
is synced, so that it can be put back.

**Why named temporaries and not** ``O_TMPFILE``: many libraries write to a *name*, NFS and most
FUSE file systems have no ``O_TMPFILE``, and it cannot replace a file without a second name
anyway. The price is a leftover after SIGKILL: its name says which process made it, and the next
publish in the folder removes those that are surely dead (`shardkeep.files.leftovers`).
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Literal

from shardkeep.errors import PlanError
from shardkeep.files.pending import Pending, TemporaryFile

__all__ = ["Exists", "publish", "publish_path", "publish_raw", "publish_set", "publish_sidecar"]

Exists = Literal["fail", "replace"]

_BUFFER_BYTES = 256 * 1024


@contextlib.contextmanager
def publish(
    path: str | os.PathLike[str], *, exists: Exists = "fail", durable: bool = True
) -> Iterator[BinaryIO]:
    """Write a file that appears whole, synced, under its final name, or not at all.

    Parameters
    ----------
    path : str or os.PathLike
        The final name; its folder must exist.
    exists : {"fail", "replace"}
        What to do if the name is taken. "fail" cannot lose a race: of several processes that
        publish one name, one succeeds. "replace" keeps the permissions of the old file and
        follows a symbolic link.
    durable : bool
        Whether to ``fsync`` file and folder. Without it the file is still whole after any kill
        of the process, but not after a power cut.

    Yields
    ------
    binary file
        Buffered and seekable, for writing. Its permissions follow the umask.

    Raises
    ------
    ExistsError
        The name is taken, now or at the end. Also if it is a folder.
    NotFoundError
        There is no such folder.
    DurabilityError
        Full disk, quota, no permission, I/O error, at any step; ``errno`` is the kernel's.
        Nothing is left behind and an old file is as it was.

    Notes
    -----
    An exception in the body publishes nothing. In a forked child the file cannot be written, and
    leaving the body there neither publishes nor removes the parent's file.

    Examples
    --------
    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with publish(os.path.join(folder, "notes.txt")) as file:
    ...     _ = file.write(b"all of it")
    ...     os.path.exists(os.path.join(folder, "notes.txt"))
    False
    >>> os.listdir(folder)
    ['notes.txt']
    """
    with publish_set([path], exists=exists, durable=durable) as files:
        yield files[0]


@contextlib.contextmanager
def publish_set(
    paths: Sequence[str | os.PathLike[str]], *, exists: Exists = "fail", durable: bool = True
) -> Iterator[list[BinaryIO]]:
    """Write several files that appear together at the end, or none of them.

    Parameters
    ----------
    paths : sequence of str or os.PathLike
        The final names, all different.
    exists, durable
        As in `publish`, for each of them.

    Yields
    ------
    list of binary file
        In the order of `paths`.

    Raises
    ------
    ExistsError, NotFoundError, DurabilityError
        As in `publish`; those that had their name already lost it again.

    Notes
    -----
    No file system renames several files at once. All bytes are synced before the first name is
    given, and the names are given in the order of `paths`; a process that is killed with SIGKILL,
    or a machine that stops, in the moment of the renames can leave a first part of the names,
    each file whole. So **the last path proves the set**: if it is there, all are (under
    "replace": if it is new, all are). A next run under ``exists="fail"`` stops with `ExistsError`
    at the first name of such a part; remove the names and run again.
    """
    with _publication(paths, exists=exists, durable=durable) as files:
        buffered = [io.BufferedWriter(file, _BUFFER_BYTES) for file in files]
        me = os.getpid()
        try:
            yield list(buffered)
            if me == os.getpid():
                for writer in buffered:
                    writer.close()
        finally:
            # What is still buffered goes nowhere: after an error, and in a forked child.
            for file, writer in zip(files, buffered, strict=True):
                file.ignore()
                writer.close()


@contextlib.contextmanager
def publish_raw(
    path: str | os.PathLike[str], *, exists: Exists = "fail", durable: bool = True
) -> Iterator[TemporaryFile]:
    """Do as `publish`, but give the unbuffered file, which can also be read back.

    For libraries that buffer on their own and take a Python file, as h5py does.
    """
    with _publication([path], exists=exists, durable=durable) as files:
        yield files[0]


@contextlib.contextmanager
def publish_path(
    path: str | os.PathLike[str], *, exists: Exists = "fail", durable: bool = True
) -> Iterator[str]:
    """Do as `publish`, for writers that want a name to open.

    Yields
    ------
    str
        The path of an empty file in the same folder, to be written (or replaced) by the body
        under exactly this name, and closed before the body ends.

    Raises
    ------
    ExistsError, NotFoundError, DurabilityError
        As in `publish`. Errors of the body's own writer pass through as they are.

    Examples
    --------
    >>> import os, tempfile
    >>> target = os.path.join(tempfile.mkdtemp(), "table.csv")
    >>> with publish_path(target) as temporary:
    ...     with open(temporary, "w") as file:
    ...         _ = file.write("step,loss")
    >>> os.path.getsize(target)
    9
    """
    with _publication([path], exists=exists, durable=durable, by_name=True) as files:
        yield files[0].name


@contextlib.contextmanager
def publish_sidecar(path: str, *, mode: int) -> Iterator[BinaryIO]:
    """Write a sidecar (`shardkeep.files.sidecar`) that appears whole, in the place of what has the name.

    A link of that name is replaced and not followed, and nothing of an old file is kept. It is not synced.

    Parameters
    ----------
    path : str
    mode : int
        Its permissions, without those that the umask forbids.

    Raises
    ------
    ExistsError, NotFoundError, DurabilityError
        As in `publish`.
    """
    with (
        _publication([path], exists="replace", durable=False, sidecar_mode=mode) as files,
        io.BufferedWriter(files[0], _BUFFER_BYTES) as file,
    ):
        yield file


@contextlib.contextmanager
def _publication(
    paths: Sequence[str | os.PathLike[str]],
    *,
    exists: Exists,
    durable: bool,
    by_name: bool = False,
    sidecar_mode: int | None = None,
) -> Iterator[list[TemporaryFile]]:
    if exists not in ("fail", "replace"):
        raise PlanError(f'exists={exists!r} means nothing here: use "fail" or "replace"')
    names = [os.fspath(path) for path in paths]
    if len({os.path.abspath(name) for name in names}) < len(names):
        raise PlanError("a set of files to publish names one path twice: pass different paths")
    me = os.getpid()
    pending: list[Pending] = []
    done = False
    try:
        for name in names:
            pending.append(
                Pending(
                    name,
                    replace=exists == "replace",
                    durable=durable,
                    by_name=by_name,
                    sidecar_mode=sidecar_mode,
                )
            )
        yield [one.file for one in pending]
        if me == os.getpid():
            _place(pending)
            done = True
    finally:
        if me == os.getpid() and not done:
            for one in reversed(pending):
                one.undo()
        for one in pending:
            one.close()


def _place(pending: list[Pending]) -> None:
    for one in pending:
        one.seal()
    for one in pending:
        one.place()
    for one in {one.folder: one for one in pending}.values():
        one.sync_folder()
    for one in pending:
        one.forget_old()
