"""End of a program without the noise of old TensorFlow releases; imports no TensorFlow."""

from __future__ import annotations

import atexit
from multiprocessing.pool import ThreadPool
from typing import Any

__all__ = ["quiet_exit"]


def quiet_exit(strategy: Any) -> None:
    """End the thread pools of a strategy before the program ends.

    Before TensorFlow 2.12 a program may end with "Exception ignored in: <function Pool.__del__" and "OSError:
    [Errno 9] Bad file descriptor", since a pool of the strategy is removed after Python has closed the
    queue of the pool (tensorflow/tensorflow#50487). Nothing is lost then. Later releases have no such
    pool, and this does nothing.

    Parameters
    ----------
    strategy : tf.distribute.Strategy
    """
    for operations in vars(strategy.extended).values():
        pool = getattr(operations, "_pool", None)
        if isinstance(pool, ThreadPool):
            atexit.register(pool.terminate)
