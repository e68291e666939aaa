"""Descriptions of data sets in a run folder, ``RUN/data-FINGERPRINT.json``.

A receipt over many shards refers to its data set by the fingerprint. The first rank that commits such a
receipt stores the description, once for all ranks and commits of the run. It is there before the commit, and
stays after a rollback: it depends only on the data.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from functools import partial
from typing import Any

from shardkeep.errors import CorruptDataError, ExistsError, LockTimeoutError
from shardkeep.files.kinds.urls import is_url, join_url
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.publish import publish
from shardkeep.files.remote.store import find
from shardkeep.files.remote.uploads import upload_file
from shardkeep.plan.proof.contents import Dataset
from shardkeep.plan.proof.description import (
    DescribedReceipt,
    describe,
    fingerprint_to_describe,
    is_description,
    parse_description,
)

__all__ = ["DescribedData", "data_path", "is_data_path", "read_described_data", "with_description"]

_NAME = re.compile(r"data-[0-9a-f]{32}\.json")
_WAIT_S, _PAUSE_S = 60.0, 0.2


class DescribedData:
    """Descriptions of the data sets in the receipts of one worker file, stored before their commit.

    Parameters
    ----------
    run_dir : str
        Path or URL of the run folder.
    durable : bool
        Whether `store` syncs file and folder.
    """

    def __init__(self, run_dir: str, *, durable: bool) -> None:
        self._run_dir = run_dir
        self._durable = durable
        self._waiting: dict[str, DescribedReceipt] = {}
        self._stored: set[str] = set()

    def add(self, receipt: object) -> None:
        """Keep the data set of a receipt for `store`, if the receipt refers to it."""
        if isinstance(receipt, DescribedReceipt):
            fingerprint = fingerprint_to_describe(receipt)
            if fingerprint is not None and fingerprint not in self._stored:
                self._waiting[fingerprint] = receipt

    def store(self) -> None:
        """Store the descriptions that are not in the run folder; errors as `publish`."""
        while self._waiting:
            fingerprint, receipt = next(iter(self._waiting.items()))
            path = data_path("" if is_url(self._run_dir) else self._run_dir, fingerprint)
            if not is_data_path(path):
                pass  # not from a Loader
            elif is_url(self._run_dir):
                self._upload(join_url(self._run_dir, path), receipt)
            else:
                self._store(path, receipt)
            self._stored.add(fingerprint)
            del self._waiting[fingerprint]

    def _store(self, path: str, receipt: DescribedReceipt) -> None:
        # One rank of thousands writes, and the others wait for the file. A rank that has waited long also
        # writes: the file is the same, and appears whole.
        until = time.monotonic() + _WAIT_S
        lock = FileLock(path, timeout_s=_PAUSE_S, if_unsafe="warn")
        while not os.path.exists(path):
            try:
                lock.acquire()
            except LockTimeoutError:
                if time.monotonic() < until:
                    continue
            try:
                if not os.path.exists(path):
                    self._publish(path, receipt)
            finally:
                lock.release()

    def _publish(self, path: str, receipt: DescribedReceipt) -> None:
        with contextlib.suppress(ExistsError), publish(path, durable=self._durable) as file:
            file.write(_text_of(receipt))

    def _upload(self, url: str, receipt: DescribedReceipt) -> None:
        if find(url) is None:
            upload_file(_text_of(receipt), url, replace=True)


def _text_of(receipt: DescribedReceipt) -> bytes:
    return json.dumps(describe(receipt.describe()), separators=(",", ":")).encode()


def data_path(run_dir: str, fingerprint: str) -> str:
    """Return the path of the description of a data set in a run folder."""
    return os.path.join(run_dir, f"data-{fingerprint}.json")


def is_data_path(path: str | os.PathLike[str]) -> bool:
    """Return True if a path has the name of a description."""
    return _NAME.fullmatch(os.path.basename(path)) is not None


def with_description(run_dir: str, receipt: dict[str, Any]) -> dict[str, Any]:
    """Return a receipt with the description of its data set, if it refers to one that is in a folder."""
    fingerprint = fingerprint_to_describe(receipt)
    if fingerprint is None or not is_data_path(path := data_path(run_dir, fingerprint)):
        return receipt
    if not os.path.exists(path):
        return receipt
    return DescribedReceipt(receipt, partial(read_described_data, path))


def read_described_data(path: str) -> Dataset:
    """Read the description of a data set.

    Raises
    ------
    CorruptDataError
        The file is damaged, or describes other data than its name says.
    PlanError
        A later Shardkeep wrote it.
    """
    with open(path, "rb") as file:
        text = file.read()
    try:
        content = json.loads(text)
        if not is_description(content):
            raise ValueError("it is not a description")
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from None
    dataset = parse_description(content, path)
    if os.path.basename(path) != os.path.basename(data_path("", dataset.fingerprint)):
        raise _damaged(path, f"it has the fingerprint {dataset.fingerprint!r:.60}")
    return dataset


def _damaged(path: str, why: str) -> CorruptDataError:
    message = f"{path!r} is not the description of the data that its name says ({why})"
    return CorruptDataError(f"{message}: restore it from a copy, or remove it", path=path)
