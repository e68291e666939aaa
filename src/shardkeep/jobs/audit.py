"""Audit of a run: its receipts are collected from files and folders, and compared."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shardkeep import hdf5, plan
from shardkeep.errors import CorruptDataError, FormatError, NotFoundError, PlanError
from shardkeep.files.kinds.kind import identify
from shardkeep.files.paths import expand, path_list
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.hdf5.segments.described_data import is_data_path, with_description
from shardkeep.loader.dataset import open_shards
from shardkeep.plan.proof.description import DESCRIPTION_KEY, describe
from shardkeep.plan.proof.receipt import check_receipt_seal

__all__ = ["audit", "gather_receipts"]

PathLike = str | os.PathLike[str]

# Every receipt has both keys, so a receipt in which one of them is damaged is still recognised.
_KEYS = ("receipt_version", "segments")
_ANY_KEY = (*_KEYS, DESCRIPTION_KEY)


@accepts_urls("paths", folders=True)
def audit(
    paths: PathLike | Iterable[PathLike],
    *,
    epochs: Sequence[int] | None = None,
    data: PathLike | Iterable[PathLike] | None = None,
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

    Returns
    -------
    plan.AuditReport
        A report whose ``ok`` is True if no record was lost and none repeated.

    Raises
    ------
    NotFoundError
        A path does not exist, or no receipt was found.
    FormatError
        A file is neither JSON with receipts nor HDF5.
    CorruptDataError
        A receipt is damaged: its checksum does not match, or it is not valid JSON.
    PlanError
        `data` are not the shards of the receipts; or they are necessary, as ranks read whole files.
    """
    given = path_list(paths)
    described = None if data is None else open_shards(expand(data), on_corrupt="skip").described()
    receipts = [receipt for path in given for receipt in gather_receipts(path)]
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


def gather_receipts(path: PathLike) -> list[dict[str, Any]]:
    """Return the receipts at one path.

    Parameters
    ----------
    path : path
        JSON file, HDF5 file, or folder with any of them.

    Returns
    -------
    list of dict

    Raises
    ------
    NotFoundError
        `path` does not exist.
    FormatError
        The file is neither HDF5 nor JSON, or its JSON is not a receipt.
    CorruptDataError
        A receipt is damaged.
    """
    kind = identify(path)
    if kind.name == "folder":
        loose = [file for file in sorted(Path(path).glob("*.json")) if not is_data_path(file)]
        receipts = [receipt for file in loose for receipt in _from_json(file, stray=True)]
        return receipts + hdf5.receipts(path)
    if kind.name == "hdf5":
        return hdf5.receipts(path)
    if kind.described == "JSON text":
        return _from_json(Path(path))
    advice = f"; {kind.advice}" if kind.advice else ""
    raise FormatError(
        f"{os.fspath(path)}: expected an HDF5 file or JSON receipts, found {kind.described}{advice}",
        path=path,
    )


def _from_json(path: Path, *, stray: bool = False) -> list[dict[str, Any]]:
    """Read a receipt or a list of them; with `stray`, ignore other JSON files."""
    text = path.read_bytes()
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
            check_receipt_seal(receipt, os.fspath(path))
        return [with_description(os.path.dirname(path), receipt) for receipt in receipts]
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
