"""What several tests with real processes use."""

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """Return a library that makes calls fail."""
    library = tmp_path_factory.mktemp("shim") / "failing_calls.so"
    source = Path(__file__).with_name("failing_calls.c")
    try:
        done = subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-w", "-o", library, source, "-ldl"],
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("there is no C compiler here")
    if done.returncode:
        pytest.skip(f"the C compiler does not work here: {done.stderr.decode()[:200]}")
    return library
