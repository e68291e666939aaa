"""The child process that reads damaged HDF5 files, since HDF5 may hang or crash.

It takes lines of JSON, ``[path, [[offset, value], ...], calls]``, writes the damaged bytes and answers with a
line of JSON for each call: the outcome, ``"ok"``, ``"error"`` (of the tree) or the class of a raw error.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import h5py

import shardkeep as sk
from shardkeep.hdf5.sources.source import open_source

_MORE_BYTES = 3 << 30
_MOST_VALUES = 1 << 20


def _open(path: str) -> None:
    with sk.hdf5.open(path):
        pass


def _read(path: str) -> None:
    with sk.hdf5.open(path) as file:

        def visit(_: str, item: Any) -> None:
            # What h5py raises for one object is the caller's.
            with contextlib.suppress(Exception):
                dict(item.attrs)
            with contextlib.suppress(Exception):
                if isinstance(item, h5py.Dataset) and item.size is not None and item.size < _MOST_VALUES:
                    item[()]

        with contextlib.suppress(Exception):
            file.visititems(visit)


def _cat(path: str) -> None:
    with open_source(path) as source:
        names = source.dataset_names()
    for name in names:
        for _ in sk.cat(path, dataset=name, limit=5):
            pass


def _merge(path: str) -> None:
    source = os.path.dirname(os.path.dirname(path)) if os.path.basename(path)[:4] == "0000" else [path]
    result = f"{path}.merged"
    try:
        sk.hdf5.merge(source, result, on_mismatch="promote")
    finally:
        if os.path.exists(result):
            os.unlink(result)


def _resume(path: str) -> None:
    run = os.path.dirname(os.path.dirname(path))
    with sk.hdf5.WorkerFile(run, sk.World(1, 2)) as out:
        out.append("a", [1])
        out.append("words", ["more"])


CALLS: dict[str, Callable[[str], object]] = {
    "open": _open,
    "read": _read,
    "info": sk.info,
    "cat": _cat,
    "merge": _merge,
    "verify": sk.hdf5.verify,
    "resume": _resume,
}


def main() -> None:
    """Serve until standard input ends."""
    warnings.simplefilter("ignore")
    with open("/proc/self/statm") as status:
        now = int(status.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + _MORE_BYTES, now + _MORE_BYTES))
    for line in sys.stdin:
        path, places, calls = json.loads(line)
        with open(path, "r+b") as file:
            for offset, value in places:
                file.seek(offset)
                file.write(bytes([value]))
        for call in calls:
            print(json.dumps(_outcome(call, path)), flush=True)  # noqa: T201  # the answer


def _outcome(call: str, path: str) -> list[str]:
    try:
        CALLS[call](path)
    except sk.ShardkeepError as error:
        return ["error", str(error)]
    except Exception as error:
        return [type(error).__name__, traceback.format_exc()]
    return ["ok", ""]


if __name__ == "__main__":
    main()
