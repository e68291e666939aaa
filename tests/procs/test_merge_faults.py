"""The kernel refuses one call of a merge: it fails with the reason, and nothing is left.

Covers `shardkeep.hdf5.merge.find_sources`, `shardkeep.hdf5.merge.plan` and `shardkeep.hdf5.merge.provenance`.
"""

import errno
import json
import os
import resource
import subprocess
import sys

import h5py
import numpy as np
import pytest

from shardkeep.errors import DurabilityError
from shardkeep.hdf5 import merge, verify
from shardkeep.hdf5.merge import keyed_rows
from tests.waiting import PATIENCE_S

# For each function: let its first call fail, then its second, … until a merge needs no more of them.
_WORK = """
import ctypes, json, os, sys
from shardkeep.errors import DurabilityError
from shardkeep.hdf5 import locking_mode, merge, verify
from shardkeep.hdf5.merge import keyed_rows

locking_mode()  # writes a small file, once per process, and does without it if that fails
libc = ctypes.CDLL(None)
libc.sk_calls.restype = ctypes.c_long
libc.sk_fail.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_long, ctypes.c_int]
keyed_rows.WINDOW_BYTES = 4096
keyed_rows._WINDOW_OBJECTS = 100
keyed_rows.Scratch.take_memory = lambda self, size_bytes: False
os.chdir(sys.argv[1])
before = sorted(os.listdir("."))
sources = [f"{i}.h5" for i in range(3)]
counts = []
for function, code, mode, order_by, exists in json.loads(sys.argv[2]):
    first = 0
    target = "old.h5" if exists == "replace" else "all.h5"
    while True:
        first += 1
        old = os.stat("old.h5")
        libc.sk_fail(function.encode(), first, first, code)
        failed = None
        try:
            merge(sources, target, mode=mode, order_by=order_by, exists=exists)
        except DurabilityError as error:
            failed = error
        calls = libc.sk_calls()
        libc.sk_fail(b"", 1, 0, 0)
        if calls < first:
            assert failed is None, failed
            assert verify(target).ok
            if exists == "fail":
                os.unlink("all.h5")
            break
        if failed is None:
            raise AssertionError((function, first, "was not noticed"))
        assert failed.errno == code, failed
        assert "\\n" not in str(failed) and os.strerror(code) in str(failed), str(failed)
        assert sorted(os.listdir(".")) == before, os.listdir(".")
        assert os.stat("old.h5").st_ino == old.st_ino
    counts.append(first - 1)
print(json.dumps(counts))
"""

# Function, error, mode, order, exists, and how many calls a merge makes at least.
_CASES = [
    ("pwrite", errno.ENOSPC, "copy", "rank", "fail", 10),
    ("pwrite", errno.EIO, "copy", "id", "fail", 10),
    ("pwrite", errno.EIO, "virtual", "rank", "fail", 2),
    ("ftruncate", errno.ENOSPC, "copy", "rank", "fail", 1),
    ("fsync", errno.EIO, "copy", "rank", "fail", 3),
    ("fsync", errno.EIO, "virtual", "rank", "replace", 3),
    ("linkat", errno.EIO, "copy", "rank", "fail", 1),
    ("renameat", errno.EIO, "copy", "rank", "replace", 1),
]


@pytest.fixture
def sources(tmp_path):
    keys = np.random.default_rng(0).permutation(600)
    for i in range(3):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            part = keys[i * 200 : i * 200 + 200]
            file["id"] = part
            file.create_dataset("x", data=np.stack([part] * 20, 1), chunks=(50, 20), compression="gzip")
            file.create_dataset("t", data=[str(key) for key in part], dtype=h5py.string_dtype())
    (tmp_path / "old.h5").write_bytes(b"old")
    return [tmp_path / f"{i}.h5" for i in range(3)]


def test_one_call_fails(tmp_path, sources, shim):
    cases = json.dumps([case[:5] for case in _CASES])
    done = subprocess.run(
        [sys.executable, "-c", _WORK, str(tmp_path), cases],
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for count, case in zip(json.loads(done.stdout), _CASES, strict=True):
        assert count >= case[5], (count, case)


@pytest.mark.parametrize("order_by", ["rank", "id"])
def test_the_size_of_files_is_limited(tmp_path, sources, order_by, monkeypatch):
    monkeypatch.setattr(keyed_rows, "WINDOW_BYTES", 4096)
    monkeypatch.setattr(keyed_rows.Scratch, "take_memory", lambda self, size_bytes: False)
    before = sorted(os.listdir(tmp_path))
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (100, 3000, 12_000):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
            with pytest.raises(DurabilityError) as caught:
                merge(sources, tmp_path / "all.h5", order_by=order_by)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        assert caught.value.errno == errno.EFBIG
        assert sorted(os.listdir(tmp_path)) == before
    merge(sources, tmp_path / "all.h5", order_by=order_by)
    assert verify(tmp_path / "all.h5").ok
