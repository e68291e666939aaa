"""Scan of a file for the start of each record."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import CorruptDataError, FormatError
from shardkeep.files.kinds.kind import identify, require_kind
from shardkeep.plan.checks import checked_int

__all__ = ["SCAN_BYTES", "Starts", "explain", "frame_starts", "processors", "scan_in_parts", "thread_count"]

Starts = npt.NDArray[np.uint64]

# After each part the scan reports progress and can be interrupted.
SCAN_BYTES = 256 << 20
_MOST_THREADS = 1024


def frame_starts(
    paths: Sequence[str | os.PathLike[str]], *, verify: bool = False, threads: int | None = None
) -> list[Starts]:
    """Return the start of each record of some files, scanned in parallel; nothing is stored.

    Parameters
    ----------
    paths : sequence of paths
        Uncompressed TFRecord files.
    verify : bool
        Check the CRC of every payload too. The headers' are always checked; without `verify`, payloads of
        large records are skipped, so that little is read.
    threads : int, optional
        Number of threads; by default the number of processors.

    Returns
    -------
    list of ndarray of uint64, shape (records + 1,)
        For each file the offset in bytes of each frame, and last the size of the file.

    Raises
    ------
    CorruptRecordError, TruncatedFileError
        A file is damaged; the error has record number and offset, and names the first damaged file.
    FormatError
        A file is of another kind, or compressed, so that its records have no offsets.
    NotFoundError
        A file does not exist.
    """
    names = [os.fspath(path) for path in paths]
    try:
        return _core.scan_frames(names, verify=verify, threads=thread_count(threads))
    except CorruptDataError as error:
        raise explain(error) from None


def scan_in_parts(
    path: str, known: Starts | None, *, verify: bool, tick: Callable[[int], None]
) -> tuple[Starts, int]:
    """Scan one file, part by part.

    Parameters
    ----------
    path : str
    known : ndarray of uint64 or None
        The offsets of the first part of the file, after which the scan continues.
    verify : bool
    tick : callable
        Called with the number of bytes of each part; an exception that it raises ends the scan.

    Returns
    -------
    ndarray of uint64, shape (records + 1,)
        The known offsets and those of the scan.
    int
        The number of parts. Each part opens the file again, so the caller should check if it was replaced.

    Raises
    ------
    CorruptRecordError, TruncatedFileError, FormatError, NotFoundError
        As `frame_starts`.
    """
    parts = [np.zeros(1, np.uint64) if known is None else known]
    at, record, until = int(parts[0][-1]), len(parts[0]) - 1, 0
    try:
        while at >= until:
            until = at + SCAN_BYTES
            part = _core.scan_part(path, offset_bytes=at, record=record, until_bytes=until, verify=verify)
            parts.append(part[1:])
            tick(int(part[-1]) - at)
            at, record = int(part[-1]), record + len(part) - 1
    except CorruptDataError as error:
        raise explain(error) from None
    return np.concatenate(parts), len(parts) - 1


def explain(error: CorruptDataError) -> Exception:
    """Return an error that names the kind of a file with a wrong or cut first header; else `error`."""
    if error.record != 0 or error.path is None:
        return error
    try:
        kind = identify(error.path)
    except OSError:
        return error
    if kind.compression is not None:
        return FormatError(
            f"{error.path}: the file is {kind.compression}-compressed as a whole, so its records have"
            " no offsets; for a loader, write it without compression: shardkeep concat IN OUT",
            path=error.path,
        )
    if not kind.may_be_damaged_records:
        try:
            require_kind(error.path, "tfrecord", found=kind)
        except FormatError as better:
            return better
    return error


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count(threads: int | None) -> int:
    """Return `threads`, or the number of processors for None; raises `PlanError` for another value."""
    return processors() if threads is None else checked_int("threads", threads, 1, _MOST_THREADS)
