"""Ctrl-C while the Rust half is loaded and first used, and its panics."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from shardkeep import _core  # makes the class of panics
from shardkeep.errors import InternalError, ShardkeepError
from tests.waiting import PATIENCE_S

INTERRUPTED = """
    import importlib.abc, os, signal, sys, time

    class Interrupt(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name == "numpy":
                sys.meta_path.remove(self)
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)

    sys.meta_path.insert(0, Interrupt())
    try:
        from shardkeep import _core
        _core.crc32c(object())  # asks NumPy whether it is an array
    except KeyboardInterrupt:
        print("interrupted")
    from shardkeep import _core
    assert "numpy" in sys.modules
    print(_core.crc32c(b"123456789") == 0xE3069283)
"""


def test_ctrl_c_during_the_first_use_of_numpy_is_a_keyboard_interrupt() -> None:
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\nTrue\n", "")


def test_a_panic_is_an_internal_error() -> None:
    (panic,) = (one for one in InternalError.__subclasses__() if one.__name__ == "PanicException")
    assert (panic.__module__, _core.__name__) == ("pyo3_runtime", "shardkeep._core")
    error = panic("index out of bounds")
    assert isinstance(error, ShardkeepError)
    assert (str(error), error.path, error.exit_code) == ("index out of bounds", None, 1)
