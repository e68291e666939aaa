"""What several tests with real processes use."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")


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


@pytest.fixture
def sshfs_mounts(tmp_path):
    """Return two mounts of one folder, which stand for two hosts."""
    server = next((server for server in SERVERS if os.path.exists(server)), None)
    if server is None or not shutil.which("sshfs") or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("no sshfs here")
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec {server}\n")
    ssh.chmod(0o755)
    store = tmp_path / "store"
    store.mkdir()
    with contextlib.ExitStack() as stack:
        points = []
        for name in ("one", "two"):
            point = tmp_path / name
            point.mkdir()
            command = ["sshfs", "-o", f"ssh_command={ssh}", f"here:{store}", str(point)]
            if subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False).returncode:
                pytest.skip("FUSE mounts are not allowed here")
            stack.callback(subprocess.run, ["umount", "-l", str(point)], check=False, timeout=PATIENCE_S)
            points.append(point)
        yield points
