"""Audit of a run: its receipts are collected from files and folders, and compared."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shardkeep import hdf5, plan
from shardkeep.errors import CorruptDataError, FormatError, NotFoundError
from shardkeep.files.kinds.kind import identify
from shardkeep.files.paths import path_list
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.plan.proof.receipt import check_receipt_seal

__all__ = ["audit", "gather_receipts"]

PathLike = str | os.PathLike[str]

# Every receipt has both keys, so a receipt in which one of them is damaged is still recognised.
_KEYS = ("receipt_version", "segments")


@accepts_urls("paths", folders=True)
def audit(paths: PathLike | Iterable[PathLike], *, epochs: Sequence[int] | None = None) -> plan.AuditReport:
    """Prove from receipts that every record was used exactly once in every epoch.

    Parameters
    ----------
    paths : path or iterable of paths
        JSON files with one receipt or a list of them (`Loader.receipt`), folders of a run, worker files and
        merged HDF5 files, in any combination. A receipt that is found twice counts once.
    epochs : sequence of int, optional
        Epochs to audit. By default all epochs of any receipt, including one that is still in progress.

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
    """
    given = path_list(paths)
    receipts = [receipt for path in given for receipt in gather_receipts(path)]
    if not receipts:
        names = "in " + ", ".join(os.fspath(path) for path in given) if given else "no path was passed"
        raise NotFoundError(
            f"no receipt found ({names}); commit with receipt=loader.receipt(), or save it as JSON",
            path=given[0] if given else None,
        )
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
        loose = sorted(Path(path).glob("*.json"))
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
        if any(f'"{key}"'.encode() in text for key in _KEYS):
            message = f"{path}: a damaged receipt, not valid JSON ({error}); restore it from a copy"
            raise CorruptDataError(message, path=path) from None
        if stray:
            return []
        raise FormatError(f"{path}: not valid JSON ({error})", path=path) from None
    receipts = content if isinstance(content, list) else [content]
    if all(isinstance(receipt, dict) and any(key in receipt for key in _KEYS) for receipt in receipts):
        for receipt in receipts:
            check_receipt_seal(receipt, os.fspath(path))
        return receipts
    if stray:
        return []
    raise FormatError(f"{path}: JSON, but neither a receipt of a Loader nor a list of receipts", path=path)
