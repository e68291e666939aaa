"""A second account that shares a folder with the one of the tests: a child process with another user id."""

from __future__ import annotations

import codecs
import contextlib
import functools
import importlib
import os
import pickle
import pkgutil
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shardkeep
from tests.waiting import PATIENCE_S

__all__ = ["GROUP", "OTHER", "THIRD", "needs_root", "run_as", "shared_folder"]

OTHER, THIRD, GROUP = 65533, 65532, 65531

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become a second user; a user namespace of one user has no other"
)


@contextlib.contextmanager
def shared_folder(mode: int = 0o777) -> Iterator[Path]:
    """Make a folder that other users may enter and write, as those of `tmp_path` may not."""
    folder = Path(tempfile.mkdtemp(prefix="shardkeep-shared-", dir="/tmp"))
    try:
        if mode & 0o2000:
            os.chown(folder, -1, GROUP)
        folder.chmod(mode)
        yield folder
    finally:
        shutil.rmtree(folder)


@functools.cache
def _import_all() -> None:
    """Import what a call may import: another user need not have the right to read the interpreter."""
    for name in ("ascii", "latin-1", "utf-8", "idna"):
        codecs.lookup(name)
    for module in pkgutil.walk_packages(shardkeep.__path__, "shardkeep."):
        if not module.name.endswith("__main__") and not module.name.startswith("shardkeep.adapters"):
            importlib.import_module(module.name)
    for extra in ("pwd", "zmq.utils.monitor", "zmq.utils.z85"):
        importlib.import_module(extra)


def run_as(user: int, function: Callable[[], Any], *, umask: int = 0o022) -> Any:
    """Call a function in a child of another user, and return what it returns or raise what it raises."""
    _import_all()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            signal.alarm(int(PATIENCE_S))
            os.umask(umask)
            os.setgroups([GROUP])
            os.setgid(GROUP)
            os.setuid(user)
            try:
                result = (True, function())
            except BaseException as error:
                result = (False, error)
            with open(write_end, "wb") as file:
                pickle.dump(result, file)
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    assert data, "the child of the other user ended without an answer"
    succeeded, result = pickle.loads(data)
    if not succeeded:
        raise result
    return result
