"""Gather the receipts of a run from wherever they lie, and prove from them what was used."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shardkeep import hdf5, plan
from shardkeep.errors import CorruptDataError, FormatError, NotFoundError
from shardkeep.files.kinds.kind import identify
from shardkeep.plan.proof.receipt import check_receipt_seal

__all__ = ["audit", "gather_receipts"]

PathLike = str | os.PathLike[str]

# Every receipt has both keys, so that one of them is left when the other one is damaged.
_KEYS = ("receipt_version", "segments")


def audit(paths: PathLike | Iterable[PathLike], *, epochs: Sequence[int] | None = None) -> plan.AuditReport:
    """Prove from receipts that every record was used exactly once in every epoch.

    Parameters
    ----------
    paths : path or iterable of paths
        JSON files with a receipt or a list of them (`Loader.receipt`), folders of a run, worker
        files, merged HDF5 files; any mixture. A receipt that is found twice counts once.
    epochs : sequence of int, optional
        The epochs to prove. By default all that any receipt mentions, the one still under way
        included.

    Returns
    -------
    plan.AuditReport
        Its ``ok`` is True if nothing was lost and nothing repeated.

    Raises
    ------
    NotFoundError
        If a path is not there, or none of them holds a receipt.
    FormatError
        If a file is neither JSON receipts nor HDF5.
    CorruptDataError
        If a receipt is damaged: it does not have the checksum of its content, or is not JSON any more.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    receipts = [receipt for path in given for receipt in gather_receipts(path)]
    if not receipts:
        names = "in " + ", ".join(os.fspath(path) for path in given) if given else "nothing was given"
        raise NotFoundError(
            f"no receipt found ({names}): commit with receipt=loader.receipt(), or save that as JSON",
            path=given[0] if given else None,
        )
    return plan.audit(receipts, epochs=epochs)


def gather_receipts(path: PathLike) -> list[dict[str, Any]]:
    """Return the receipts at one path: a JSON file, an HDF5 file, or a folder with any of them.

    Raises
    ------
    NotFoundError
        If there is nothing at `path`.
    FormatError
        If the file is neither, or its JSON is not a receipt.
    CorruptDataError
        If a receipt is damaged.
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
    """Read a receipt or a list of them; with `stray`, pass over JSON that is something else."""
    text = path.read_bytes()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        # To pass over a damaged receipt could prove an epoch that it contradicts.
        if any(f'"{key}"'.encode() in text for key in _KEYS):
            message = f"{path}: a receipt that is not valid JSON any more ({error}): take it from a copy"
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
    raise FormatError(f"{path}: JSON, but not a receipt of a Loader or a list of them", path=path)
