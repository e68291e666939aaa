"""Audit of a run: its receipts are collected from files and folders, and compared."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

from shardkeep import hdf5, plan
from shardkeep.errors import CorruptDataError, FormatError, NotFoundError, PlanError
from shardkeep.files.kinds.kind import identify
from shardkeep.files.paths import expand, path_list
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.files.threads.work import Tick, Work
from shardkeep.hdf5.segments.described_data import is_data_path, with_description
from shardkeep.hdf5.segments.run_folder import list_ranks
from shardkeep.hdf5.sources.receipts import receipts_of_rank
from shardkeep.loader.dataset import open_shards
from shardkeep.plan.proof.description import DESCRIPTION_KEY, describe
from shardkeep.plan.proof.receipt import check_receipt_seal

__all__ = ["audit", "receipts_in_json"]

PathLike = str | os.PathLike[str]

# Every receipt has both keys, so a receipt in which one of them is damaged is still recognised.
_KEYS = ("receipt_version", "segments")
_ANY_KEY = (*_KEYS, DESCRIPTION_KEY)
# About the metadata of the two segments that are read of a rank, for the progress.
_RANK_BYTES = 8192


class _Part(NamedTuple):
    """The folder of a rank, or a JSON file, of which `is_stray` is True in a folder with other JSON files."""

    path: str
    size_bytes: int
    is_rank: bool = False
    is_stray: bool = False


@accepts_urls("paths", folders=True)
def audit(
    paths: PathLike | Iterable[PathLike],
    *,
    epochs: Sequence[int] | None = None,
    data: PathLike | Iterable[PathLike] | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> plan.AuditReport:
    """Prove from receipts that every record was used exactly once in every epoch.

    Parameters
    ----------
    paths : path or iterable of paths
        JSON files with one receipt or a list of them (`Loader.receipt`), also with descriptions of data sets
        (`Loader.describe_data`); folders of a run, worker files and merged HDF5 files; in any combination. A
        receipt that is found twice counts once.
    epochs : sequence of int, optional
        Epochs to audit. By default all epochs of any receipt, including one that is still in progress.
    data : path, pattern or iterable of them, optional
        The shards of the training, in its order, if receipts refer to them and their description is lost.
    executor : concurrent.futures.Executor, optional
        Its workers read the receipts of the ranks and the JSON files; see `shardkeep.engine`.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` in the calling thread.

    Returns
    -------
    plan.AuditReport
        A report whose ``ok`` is True if no record was lost and none repeated.

    Raises
    ------
    NotFoundError
        A path does not exist, or no receipt was found. A worker of the executor does not have a file.
    FormatError
        A file is neither JSON with receipts nor HDF5.
    CorruptDataError
        A receipt is damaged: its checksum does not match, or it is not valid JSON.
    PlanError
        `data` are not the shards of the receipts; or they are necessary, as ranks read whole files.
    EngineError
        The executor did not finish a task.
    """
    given = path_list(paths)
    described = None if data is None else open_shards(expand(data), on_corrupt="skip").described()
    receipts = _read_all(given, executor, progress)
    if not receipts:
        names = "in " + ", ".join(os.fspath(path) for path in given) if given else "no path was passed"
        raise NotFoundError(
            f"no receipt found ({names}); commit with receipt=loader.receipt(), or save it as JSON",
            path=given[0] if given else None,
        )
    if described is not None:
        _check_described(described, receipts)
        receipts.append(describe(described))
    return plan.audit(receipts, epochs=epochs)


def _read_all(
    paths: Iterable[PathLike], executor: Executor | None, progress: Callable[[int, int], None] | None
) -> list[dict[str, Any]]:
    """Return the receipts at all paths, with the descriptions of their data sets."""
    receipts: list[dict[str, Any]] = []
    parts: list[_Part] = []
    for path in paths:
        kind = identify(path)
        name = os.fspath(path)
        if kind.name == "folder":
            for file in sorted(Path(path).glob("*.json")):
                if not is_data_path(file):
                    parts.append(_Part(str(file), file.stat().st_size, is_stray=True))
            parts += [_Part(rank, _RANK_BYTES, is_rank=True) for rank in list_ranks(name).values()]
        elif kind.name == "hdf5":
            receipts += hdf5.receipts(path)
        elif kind.described == "JSON text":
            parts.append(_Part(name, os.path.getsize(path)))
        else:
            advice = f"; {kind.advice}" if kind.advice else ""
            raise FormatError(
                f"{name}: expected an HDF5 file or JSON receipts, found {kind.described}{advice}", path=path
            )
    work = Work(progress, sum(part.size_bytes for part in parts), executor)
    # One thread: HDF5 has one lock, and so has Python for JSON.
    for part, found in zip(parts, work.run(_read, parts, 1), strict=True):
        # Here, since a receipt that a worker returns has lost what it can read later.
        receipts += [with_description(os.path.dirname(part.path), receipt) for receipt in found]
    return receipts


def _read(part: _Part, tick: Tick) -> list[dict[str, Any]]:
    path = part.path
    found = receipts_of_rank(path) if part.is_rank else receipts_in_json(path, stray=part.is_stray)
    tick(part.size_bytes)
    return found


def receipts_in_json(path: str, *, stray: bool = False) -> list[dict[str, Any]]:
    """Read a receipt or a list of them; with `stray`, ignore other JSON files."""
    text = Path(path).read_bytes()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        # An ignored damaged receipt could contradict an epoch that the others prove.
        if any(f'"{key}"'.encode() in text for key in _ANY_KEY):
            message = f"{path}: a damaged receipt, not valid JSON ({error}); restore it from a copy"
            raise CorruptDataError(message, path=path) from None
        if stray:
            return []
        raise FormatError(f"{path}: not valid JSON ({error})", path=path) from None
    receipts = content if isinstance(content, list) else [content]
    if all(isinstance(one, dict) and any(key in one for key in _ANY_KEY) for one in receipts):
        for receipt in receipts:
            check_receipt_seal(receipt, path)
        return receipts
    if stray:
        return []
    raise FormatError(f"{path}: JSON, but neither a receipt of a Loader nor a list of receipts", path=path)


def _check_described(found: plan.Dataset, receipts: Iterable[dict[str, Any]]) -> None:
    """Raise a `PlanError` if the shards are not those of a receipt."""
    named = [one["dataset"] for one in receipts if isinstance(one.get("dataset"), dict)]
    if not any(one.get("fingerprint") == found.fingerprint for one in named):
        other = f", not the {named[0].get('records')!r:.60} of the receipts" if named else ""
        raise PlanError(
            f"the data are not those of the receipts: {len(found.shards)} shards with {found.records} records"
            f"{other}; pass the shards of the training, in its order, as data= (--data)"
        )
