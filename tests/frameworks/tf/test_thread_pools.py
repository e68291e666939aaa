"""The end of a program whose strategy has a thread pool, as that of TensorFlow 2.9.

Covers `shardkeep.adapters.tensorflow.thread_pools`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

tf = pytest.importorskip("tensorflow")

from shardkeep.adapters.tensorflow import quiet_exit  # noqa: E402
from tests.waiting import PATIENCE_S  # noqa: E402

# Python closes the queue of the pool before it removes the pool.
PROGRAM = """
import atexit
from multiprocessing import SimpleQueue
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace
from shardkeep.adapters.tensorflow import quiet_exit

operations = SimpleNamespace(_pool=ThreadPool(2))
strategy = SimpleNamespace(extended=SimpleNamespace(_cross_device_ops=operations, _num_gpus=0))
operations._pool._change_notifier = SimpleQueue()
atexit.register(operations._pool._change_notifier._writer.close)
{call}
"""


@pytest.mark.parametrize("quiet", [False, True])
def test_the_pool_of_a_strategy_ends_before_its_queue(quiet: bool) -> None:
    program = PROGRAM.format(call="quiet_exit(strategy)" if quiet else "pass")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert ("Exception ignored in: <function Pool.__del__" in done.stderr) != quiet, done.stderr


def test_a_strategy_without_a_pool_is_left_alone() -> None:
    quiet_exit(tf.distribute.MirroredStrategy(["/cpu:0"]))
