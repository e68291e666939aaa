"""The kernel refuses one call: a full disk, an I/O error, at every call that a commit makes."""

import errno
import json
import os
import subprocess
import sys

import pytest

from tests.waiting import PATIENCE_S

# Each case: two commits on a sound disk, then rows and a commit while calls `first` to `last` of one
# function fail, then the disk is sound again.
_WORK = """
import ctypes, errno, json, os, shutil, sys, warnings
import numpy as np
from shardkeep.errors import DurabilityError
from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World

libc = ctypes.CDLL(None)
libc.sk_calls.restype = ctypes.c_long
libc.sk_fail.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_long, ctypes.c_int]
world = World(rank=0, size=1)
rows = np.arange(300_000, dtype="i4").reshape(-1, 100)
names = ["00000000-step-1.h5", "00000001-step-2.h5"]


def check(run, step):
    with WorkerFile(run, world) as out:
        assert out.committed_step == step, (out.committed_step, step)
        assert out.committed_rows == {"x": 1000 * step}, out.committed_rows
        assert out.attributes() == {"step": step}
        folder = os.listdir(run + "/rank-00000")
    assert len(folder) == step + 1, folder


def case(run, function, first, last, code, link):
    out = WorkerFile(run, world)
    out.declare("x", "i4", (100,), compression=None if first % 2 else "gzip")
    for step in (1, 2):
        out.append("x", rows[1000 * step - 1000 : 1000 * step])
        out.set_attribute("step", step)
        out.commit(step=step)
    real = os.link
    if not link:
        def refuse(*a, **k):
            raise OSError(errno.EPERM, "no links")
        os.link = refuse
    libc.sk_fail(function, first, last, code)
    failed = None
    try:
        out.append("x", rows[2000:2500])
        for i in range(2500, 3000):
            out.append("x", rows[i : i + 1])
        out.set_attribute("step", 3)
        out.commit(step=3)
    except DurabilityError as error:
        failed = error
    calls = libc.sk_calls()
    libc.sk_fail(b"", 1, 0, 0)
    os.link = real
    if failed is None:
        assert calls < first or function == b"close", (function, first)
        out.close()
        check(run, 3)
        return calls
    assert failed.errno == code, failed
    assert "\\n" not in str(failed) and (os.strerror(code) in str(failed)), str(failed)
    try:
        out.append("x", rows[:1])
    except DurabilityError as error:
        assert "rollback" in str(error)
    else:
        raise AssertionError("went on")
    if first == last:
        # It failed once, so what was begun could be taken back.
        left = sorted(os.listdir(run + "/rank-00000"))
        assert left == [*names, "writer.lock"], left
    if first % 3 == 0:
        out.close()
        out = WorkerFile(run, world)
        assert out.committed_step in ((2,) if first == last else (2, 3))
    out.rollback(step=2)
    out.append("x", rows[2000:3000])
    out.set_attribute("step", 3)
    out.commit(step=3)
    out.close()
    check(run, 3)
    return calls


forever = sys.argv[2] == "forever"
counts = []
for function, code, link in json.loads(sys.argv[3]):
    first = 0
    while True:
        first += 1
        run = f"{sys.argv[1]}/{function}-{code}-{first}"
        calls = case(run, function.encode(), first, 1 << 30 if forever else first, code, link)
        shutil.rmtree(run)
        if calls < first:
            break
    counts.append(first - 1)
print(json.dumps(counts))
"""


# Function, what it says, whether hard links work (the final name is claimed in another way without them),
# and how many calls of it a commit makes at least.
_CASES = [
    ("pwrite", errno.ENOSPC, True, 3),
    ("pwrite", errno.EIO, True, 3),
    ("ftruncate", errno.ENOSPC, True, 1),
    ("fsync", errno.EIO, True, 2),
    ("linkat", errno.ENOSPC, True, 1),
    ("linkat", errno.EIO, True, 1),
    ("unlinkat", errno.EIO, True, 1),
    ("close", errno.EDQUOT, True, 2),
    ("renameat2", errno.EIO, False, 1),
]


@pytest.mark.parametrize("how", ["once", "forever"])
def test_one_call_fails(tmp_path, shim, how):
    cases = json.dumps([case[:3] for case in _CASES])
    done = subprocess.run(
        [sys.executable, "-c", _WORK, str(tmp_path), how, cases],
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for count, case in zip(json.loads(done.stdout), _CASES, strict=True):
        assert count >= case[3], case
