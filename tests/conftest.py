"""What every test can use, and how the whole run behaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# No deadline: the machines of continuous integration pause. There, examples are the same every
# time, so that a red run can be repeated.
settings.register_profile("here", deadline=None, max_examples=60)
settings.register_profile("ci", settings.get_profile("here"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: runs with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the indexes that readers store out of the user's own cache; child processes inherit it."""
    os.environ["SHARDKEEP_INDEX_DIR"] = str(tmp_path_factory.mktemp("index-cache"))


@pytest.fixture(scope="session")
def tensorflow_python() -> str:
    """The path of a Python interpreter that has TensorFlow; the test is skipped without one.

    TensorFlow runs in a child process with this interpreter. It pins an older h5py, so it has a
    venv of its own and Shardkeep is tested with the newest. Looked for in this order: the variable
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


def _has_tensorflow(python: str) -> bool:
    # Looked up without importing it, which takes seconds.
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('tensorflow') is None)"
    try:
        return subprocess.run([python, "-c", probe], timeout=60, check=False).returncode == 0
    except OSError:
        return False
