"""Fixtures of all tests, and the settings of a whole run."""

from __future__ import annotations

import compileall
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from shardkeep.files import leftovers
from tests.processes import children, end, said
from tests.tensorflow_child import TensorFlow, tensorflow_child

# The limit for the others is too short for these on a machine that does much else.
_SLOW_S = 3600

ROOT = Path(__file__).resolve().parent.parent

# No deadline: the machines of continuous integration pause. There, examples are the same every
# time, so that a red run can be repeated.
settings.register_profile("here", deadline=None, max_examples=60)
settings.register_profile("ci", settings.get_profile("here"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    # Hundreds of children import the package. None of them compiles it, also where Python was told to write
    # no bytecode; and none that may write few bytes leaves half a compiled module (CPython issue 126606).
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(ROOT / "src", quiet=2)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    # Doctests are in the package. Of a test that cannot be imported, their collector leaves half a module
    # behind, in which pytest then finds no test and no error.
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        mark = pytest.mark.timeout(_SLOW_S)
    else:
        mark = pytest.mark.skip(reason="slow: runs with --slow")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Leave what stays for the rest of the run out of the search for garbage, which many tests ask for."""
    done = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return done


_PID = os.getpid()
_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the children of a test that fails have said: the log alone must explain it."""
    report = yield
    if os.getpid() != _PID:  # a forked child that its test did not end must not run the rest of the tests
        sys.__stderr__.write(f"a forked child came back from {item.nodeid}:\n{report.longreprtext}\n")
        sys.__stderr__.flush()
        os._exit(70)
    if report.failed and call.excinfo is not None:
        item.stash[_FAILED] = True
        report.sections += said(call.excinfo.value, call.excinfo.tb)
    return report


@pytest.fixture(autouse=True)
def _no_child_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that does not wait for each process that it started; end those of any test."""
    before = children()
    yield
    left = {pid: command for pid, command in children().items() if pid not in before}
    if left:
        end(list(left))
        if not request.node.stash.get(_FAILED, False):
            pytest.fail(f"children that were not waited for: {left}")


@pytest.fixture(scope="session", autouse=True)
def _surroundings_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what readers and programs store out of the user's folders; child processes inherit it.

    The temporary folder is one of this run, so that nothing stays of a test that kills its children. Its
    path is short: the path of a socket has room for a hundred characters.
    """
    os.environ["SHARDKEEP_INDEX_DIR"] = str(tmp_path_factory.mktemp("index-cache"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it puts in the background so, and every child would be deaf to Ctrl-C too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.MonkeyPatch.context() as patch:
        folder = tempfile.mkdtemp(prefix="shardkeep-tests-")
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)
        # After `multiprocessing` has removed its own folder in there.
        Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=-200)
        # How soon a folder is swept again depends on how long that took: a test may not depend on it.
        patch.setattr(leftovers, "_SWEEP_SHARE", 0.0)
        yield


@pytest.fixture(scope="session")
def tensorflow_python() -> str:
    """The path of a Python interpreter that has TensorFlow; the test is skipped without one.

    TensorFlow runs in a child process with this interpreter. It pins an older h5py, so it has
    its own venv, and Shardkeep is tested with the newest. Candidates, in this order: the variable
    SHARDKEEP_TF_PYTHON, .venv-tf (`make frameworks`), the interpreter of the tests.
    """
    named = os.environ.get("SHARDKEEP_TF_PYTHON")
    if named:
        if not _has_tensorflow(named):
            pytest.fail(f"SHARDKEEP_TF_PYTHON={named} cannot import tensorflow")
        return named
    for python in (str(ROOT / ".venv-tf/bin/python"), sys.executable):
        if Path(python).exists() and _has_tensorflow(python):
            return python
    pytest.skip("no TensorFlow here: run `make frameworks`, or set SHARDKEEP_TF_PYTHON")


@pytest.fixture(scope="session")
def tensorflow(tensorflow_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorFlow]:
    """TensorFlow in one process for all tests of this run."""
    log = tmp_path_factory.mktemp("tensorflow") / "stderr"
    with tensorflow_child(tensorflow_python, log) as child:
        yield child


def _has_tensorflow(python: str) -> bool:
    # Looked up without importing it, which takes seconds.
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('tensorflow') is None)"
    try:
        return subprocess.run([python, "-c", probe], timeout=200, check=False).returncode == 0
    except OSError:
        return False
