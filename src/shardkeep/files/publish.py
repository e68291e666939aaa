"""Publication of files: whole and synced under their final name, or not at all.

The steps, in order: a temporary file in the same folder; the caller's writes; ``fsync`` of the
file; the final name; ``fsync`` of the folder. A failure up to the last step leaves no trace: the temporary
file, and the final name if it exists already, are removed.

**The final name.** ``exists="fail"`` creates it with link(2), which fails if the name exists: of two
processes only one succeeds, and no old file is lost. Where a file system has no hard links,
``renameat2(RENAME_NOREPLACE)`` is used, and where it has neither, the name is created with ``O_CREAT |
O_EXCL`` before the rename (a kill exactly between the two leaves an empty file). ``exists="replace"`` renames
over the old file, which is kept under a second name until the folder is synced, so that it can be restored.

**Why named temporaries and not** ``O_TMPFILE``: many libraries write to a *name*, NFS and most
FUSE file systems have no ``O_TMPFILE``, and it cannot replace a file without a second name
anyway. The disadvantage is a leftover after SIGKILL: its name identifies its process, and the next
publication in the folder removes the files of dead processes (`shardkeep.files.leftovers`).
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Literal

from shardkeep.errors import PlanError
from shardkeep.files.kinds.urls import is_url, local_path, path_or_url
from shardkeep.files.pending import Pending, place_all
from shardkeep.files.temporary_file import TemporaryFile

__all__ = ["Exists", "publish", "publish_path", "publish_raw", "publish_set", "publish_sidecar"]

Exists = Literal["fail", "replace"]

_BUFFER_BYTES = 256 * 1024


@contextlib.contextmanager
def publish(
    path: str | os.PathLike[str], *, exists: Exists = "fail", durable: bool = True
) -> Iterator[BinaryIO]:
    """Write a file that appears whole and synced under its final name, or not at all.

    Parameters
    ----------
    path : str or os.PathLike
        The final name; its folder must exist.
    exists : {"fail", "replace"}
        What to do if the name exists. With "fail", exactly one of several processes that publish one name
        succeeds. "replace" keeps the permissions of the old file and follows a symbolic link.
    durable : bool
        True to ``fsync`` file and folder. Without it the file is still whole after a kill of the process, but
        not after a power cut.

    Yields
    ------
    binary file
        Buffered and seekable, for writing. Its permissions follow the umask.

    Raises
    ------
    ExistsError
        The name exists, now or at the end. Also, with both values of `exists`, if it is a folder, a device, a
        named pipe or a socket.
    NotFoundError
        The folder does not exist.
    DurabilityError
        Full disk, quota, no permission, I/O error, at any step; ``errno`` is the kernel's.
        No file remains, and an old file is unchanged.

    Notes
    -----
    After an exception in the body nothing is published. In a forked child the file cannot be written, and the
    end of the body there neither publishes nor removes the parent's file.

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
        As in `publish`; files that were already renamed are removed again.
    PlanError
        `paths` is a single path, or has one twice.

    Notes
    -----
    No file system renames several files at once. All bytes are synced before the first rename, and the
    renames are done in the order of `paths`; a process that is killed with SIGKILL, or a machine that stops,
    during the renames can leave the first files of the set, each whole. So **the last path proves the set**:
    if it exists, all do (with "replace": if it is new, all are). A later run with ``exists="fail"`` then
    raises `ExistsError` at the first existing name; remove these files and run again.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise PlanError(f"paths must be several in a list, not {paths!r:.60}; publish() takes one")
    with _publication(paths, exists=exists, durable=durable) as files:
        buffered = [io.BufferedWriter(file, _BUFFER_BYTES) for file in files]
        me = os.getpid()
        try:
            yield list(buffered)
            if me == os.getpid():
                for writer in buffered:
                    writer.close()
        finally:
            # Discard buffered data: after an error, and in a forked child.
            for file, writer in zip(files, buffered, strict=True):
                file.ignore()
                writer.close()


@contextlib.contextmanager
def publish_raw(path: str | os.PathLike[str], *, exists: Exists = "fail") -> Iterator[TemporaryFile]:
    """Publish as `publish` does, but yield the unbuffered file, which can also be read back.

    For libraries that have their own buffers and take a Python file, such as h5py.
    """
    with _publication([path], exists=exists, durable=True) as files:
        yield files[0]


@contextlib.contextmanager
def publish_path(
    path: str | os.PathLike[str], *, exists: Exists = "fail", durable: bool = True
) -> Iterator[str]:
    """Publish as `publish` does, for writers that open a path.

    Parameters
    ----------
    path, exists, durable
        As in `publish`.

    Yields
    ------
    str
        The path of an empty file in the same folder, to be written (or replaced) by the body
        under exactly this name, and closed before the body ends.

    Raises
    ------
    ExistsError, NotFoundError, DurabilityError
        As in `publish`. Errors of the body's own writer are not converted.

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
    """Write a sidecar (`shardkeep.files.sidecar`) that appears whole, and replaces a file of its name.

    A link of that name is replaced, not followed, and no attribute of an old file is kept. The file is not
    synced.

    Parameters
    ----------
    path : str
    mode : int
        Its permissions, before the umask.

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
        raise PlanError(f'exists={exists!r} is not valid: use "fail" or "replace"')
    checked = path_or_url if sidecar_mode is None else local_path
    names = [checked(path) for path in paths]
    if len({name if is_url(name) else os.path.abspath(name) for name in names}) < len(names):
        raise PlanError("a set of files to publish names one path twice: pass different paths")
    me = os.getpid()
    pending: list[Any] = []
    done = False
    try:
        for name in names:
            if is_url(name):
                from shardkeep.files.remote.pending import RemotePending

                RemotePending(name, replace=exists == "replace", by_name=by_name, within=pending)
                continue
            Pending(
                name,
                replace=exists == "replace",
                durable=durable,
                by_name=by_name,
                sidecar_mode=sidecar_mode,
                within=pending,
            )
        yield [one.file for one in pending]
        if me == os.getpid():
            for one in pending:
                one.seal()
            place_all(pending)
            done = True
    finally:
        if me == os.getpid() and not done:
            for one in reversed(pending):
                one.undo()
        for one in pending:
            one.close()
