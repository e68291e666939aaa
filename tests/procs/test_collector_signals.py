"""Signal handlers that interrupt a call of a client, and raise, or call it again."""

import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest

from tests.procs.collector_run import collecting
from tests.waiting import PATIENCE_S

HEAD = """
import random, signal, sys, threading, time
import numpy as np
from shardkeep.errors import LockError
from shardkeep.hdf5 import connect
from shardkeep.world import World
place, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
SCALAR, ROWS, MANY = 1, 700, 90_000

def again(delay_s):
    signal.setitimer(signal.ITIMER_REAL, delay_s)

def shape_of(client, call, number):
    # The number of rows that the call adds; all have its number, so that a partial call is recognized.
    kind = number % 40
    if kind == 0:
        call("x", np.full(MANY, number))
        return MANY
    if kind % 2:
        call("x", np.full(ROWS, number))
        return ROWS
    call("x", number)
    return SCALAR
"""

RAISES = """
class Interrupt(Exception):
    pass

def handler(number, frame):
    raise Interrupt

client = connect(place, World(rank=0, size=1), timeout_s=100)
client.append("x", np.zeros(0, "i8"))
signal.signal(signal.SIGALRM, handler)
number, sure, interrupted = 1, [], []
while len(interrupted) < 200:
    try:
        again(chance.random() * chance.choice([1e-4, 1e-3, 1e-2]) + 1e-6)
        while True:
            number += 1
            shape_of(client, client.append, number)
            sure.append(number)
            if number % 500 == 0:
                client.flush()
    except Interrupt:
        if not sure or sure[-1] != number:
            interrupted.append(number)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
client.append("x", -1)
client.close()
np.save(sys.argv[3], np.array(sure))
"""

CALLS = """
refused = worked = 0

def handler(_, frame):
    global refused, worked, nested
    try:
        nested += 1
        if chance.random() < 0.3:
            client.flush()
        else:
            client.append("y", nested)
            said.append(nested)
        worked += 1
    except LockError:
        refused += 1
    again(chance.random() * chance.choice([1e-4, 1e-3]) + 1e-5)

said, nested = [], 0
client = connect(place, World(rank=0, size=1), timeout_s=100)
client.append("x", np.zeros(0, "i8"))
client.append("y", np.zeros(0, "i8"))
signal.signal(signal.SIGALRM, handler)
again(1e-4)
number, sure = 1, []
while worked < 50 or refused < 5:
    number += 1
    shape_of(client, client.append, number)
    sure.append(number)
    if number % 500 == 0:
        client.flush()
signal.signal(signal.SIGALRM, signal.SIG_IGN)
client.append("x", -1)
client.close()
np.save(sys.argv[3], np.array(sure))
np.save(sys.argv[3].replace(".npy", "-y.npy"), np.array(said))
"""


def _run(tmp_path, body, seed):
    """Run a program; return the rows of each dataset, and the numbers of the calls that returned."""
    path, sure = tmp_path / "all.h5", tmp_path / "sure.npy"
    with collecting(path, durability="flush"):
        program = HEAD + textwrap.dedent(body)
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), str(seed), str(sure)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    with h5py.File(path) as file:
        rows = {name: file[name][:] for name in ("x", "y") if name in file}
    return rows, np.load(sure)


def _check(rows, sure):
    """Every call that returned added all of its rows, every other one all or none, and all in order."""
    assert rows[-1] == -1
    numbers, counts = np.unique(rows[:-1], return_counts=True)
    assert (np.diff(rows[:-1]) >= 0).all()
    kinds = numbers % 40
    wanted = np.where(kinds == 0, 90_000, np.where(kinds % 2 == 1, 700, 1))
    assert (counts == wanted).all(), list(zip(numbers, counts, wanted, strict=True))[:5]
    assert np.isin(sure, numbers).all()


@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1, 20))])
def test_a_call_that_a_handler_interrupts_adds_all_its_rows_or_none(tmp_path, seed):
    rows, sure = _run(tmp_path, RAISES, seed)
    _check(rows["x"], sure)


def test_a_handler_may_call_the_client_or_is_refused(tmp_path):
    rows, sure = _run(tmp_path, CALLS, 1)
    _check(rows["x"], sure)
    assert rows["y"].tolist() == np.load(tmp_path / "sure-y.npy").tolist()
