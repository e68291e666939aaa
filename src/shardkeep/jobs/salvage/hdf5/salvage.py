"""Repair of a damaged HDF5 file.

First the superblock is repaired and nothing else: its signature, checksum, consistency flags and end of
address. If HDF5 then reads everything, the result is a copy with that superblock. Otherwise a new file gets
each object and each chunk that can be read (`walk`, `rows`).

HDF5 reads the damaged file in a child process (`process`), because it may crash or run for ever.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from shardkeep.errors import FormatError
from shardkeep.files.child_python import Children
from shardkeep.files.publish import Exists, publish_path, publish_raw
from shardkeep.files.writeback import Writeback
from shardkeep.jobs.salvage.file_copy import copy_into
from shardkeep.jobs.salvage.hdf5.process import CHILD, Copied, copy_objects
from shardkeep.jobs.salvage.hdf5.superblock import Superblock, has_signature, superblocks
from shardkeep.jobs.salvage.report import NothingKeptError, RepairedFile, RepairedPart

__all__ = ["salvage_hdf5"]


def salvage_hdf5(
    path: str, output: str | None, *, exists: Exists = "fail", tick: Callable[[int], None]
) -> RepairedFile:
    """Write what can be kept of a damaged HDF5 file to a new file; see `shardkeep.jobs.salvage`.

    Raises
    ------
    FormatError
        The file has no trace of HDF5.
    CorruptDataError
        A process changed the file.
    ExistsError, DurabilityError, OSError
        The file cannot be read, or the output cannot be written.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size_bytes = os.fstat(fd).st_size
        blocks = list(superblocks(fd, size_bytes))
        is_marked = has_signature(fd, size_bytes)
    finally:
        os.close(fd)
    with Children(CHILD) as children:
        return _Salvage(path, output, exists, size_bytes, tick, children, is_marked=is_marked).run(blocks)


class _Salvage:
    def __init__(
        self,
        path: str,
        output: str | None,
        exists: Exists,
        size_bytes: int,
        tick: Callable[[int], None],
        children: Children,
        *,
        is_marked: bool,
    ) -> None:
        self._exists = exists
        self._path, self._output = path, output
        self._size_bytes, self._left = size_bytes, size_bytes
        self._tick, self._is_marked = tick, is_marked
        self._children = children

    def run(self, blocks: Sequence[Superblock]) -> RepairedFile:
        chosen: Superblock | None = None
        for block in blocks:
            if block.is_made and chosen is not None:
                break
            copied = self._copy(block, salvages=False)
            if copied.is_whole:
                return self._same(block, copied)
            if not copied.failure:
                chosen = block
        return self._new(chosen or (blocks or [Superblock(0, b"")])[-1])

    def _copy(self, block: Superblock, *, salvages: bool) -> Copied:
        return copy_objects(self._children, self._path, block, salvages=salvages, tick=self._count)

    def _copy_to(self, target: str, block: Superblock) -> Copied:
        """Copy what can be read to a new file, while the disk writes it."""
        with open(target, "rb") as file, Writeback(file, target) as writeback:

            def count(done: int) -> None:
                writeback.wrote()
                self._count(done)

            return copy_objects(self._children, self._path, block, target, salvages=True, tick=count)

    def _same(self, block: Superblock, copied: Copied) -> RepairedFile:
        """Copy the file with another superblock."""
        if self._output is not None:
            with publish_raw(self._output, exists=self._exists) as target:
                copy_into(self._path, target, lambda _: self._tick(0))
                target.seek(block.offset_bytes)
                target.write(block.data)
        return self._result(self._output, block, copied)

    def _new(self, block: Superblock) -> RepairedFile:
        """Write a new file with everything that can be read."""
        output = self._output
        if output is None:
            copied = self._copy(block, salvages=True)
            self._refuse_other_kinds(block, copied)
            return self._result(None, block, copied)
        try:
            with publish_path(output, exists=self._exists) as temporary:
                copied = self._copy_to(temporary, block)
                self._refuse_other_kinds(block, copied)
                if not _has_content(copied):
                    raise NothingKeptError
                self._copy_user_block(block, temporary)
        except NothingKeptError:
            output = None
        return self._result(output, block, copied)

    def _refuse_other_kinds(self, block: Superblock, copied: Copied) -> None:
        if not (block.data or self._is_marked or _has_content(copied)):
            message = f"{self._path!r} is not an HDF5 file: it has no signature and no object of one"
            raise FormatError(f"{message}; restore it from a copy", path=self._path)

    def _copy_user_block(self, block: Superblock, target: str) -> None:
        if block.offset_bytes:
            with open(self._path, "rb") as source, open(target, "r+b") as file:
                file.write(source.read(block.offset_bytes))

    def _result(self, output: str | None, block: Superblock, copied: Copied) -> RepairedFile:
        parts = copied.parts
        if copied.failure:
            parts = (RepairedPart("lost", copied.failure, offset_bytes=0, bytes=self._size_bytes),)
        if block.changes and not copied.failure:
            reason = f"the superblock: {'; '.join(block.changes)}"
            at, size = block.offset_bytes, len(block.data)
            parts = (RepairedPart("repaired", reason, offset_bytes=at, bytes=size), *parts)
        self._count(self._left)
        return RepairedFile(self._path, output, copied.kind, self._size_bytes, parts)

    def _count(self, done: int) -> None:
        done = min(done, self._left)
        self._left -= done
        self._tick(done)


def _has_content(copied: Copied) -> bool:
    """Return whether a copy has anything but an empty root group."""
    return not copied.failure and any(
        part.outcome != "lost" and (part.items or part.dataset != "/") for part in copied.parts
    )
