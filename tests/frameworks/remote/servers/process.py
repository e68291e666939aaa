"""Server processes of a test session: each on a free port of the loopback interface, none outlives pytest."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.processes import kept

__all__ = ["free_ports", "listens", "program", "serve"]

_ROOT = Path(__file__).resolve().parents[4]
_START_S = 150.0  # a JVM on a machine whose cores do much else


def program(name: str, package: str) -> str:
    """Return the path of a program; skip the test where it is absent."""
    for folder in (Path(sys.executable).parent, _ROOT / ".venv-remote/bin"):
        if (folder / name).exists():
            return str(folder / name)
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"no {name} here: install {package}, or run `make frameworks system-packages`")
    return found


def free_ports(count: int) -> list[int]:
    """Return different ports that no socket uses now.

    They are below the range from which the kernel takes the ports of outgoing connections, and far enough
    below that a server can add 10,000 to its port for a second one, as SeaweedFS does.
    """
    found: list[int] = []
    start = 12_000 + os.getpid() * 7 % 8_000
    for port in range(start, start + 8_000):
        with contextlib.suppress(OSError):
            for one in (port, port + 10_000):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", one))
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError("no free ports")


def listens(port: int) -> bool:
    """Return True if a server accepts connections on this port of the loopback interface."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def serve(
    command: Sequence[str],
    *,
    ready: Callable[[], bool],
    log: Path,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    ending: int = signal.SIGKILL,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, wait until `ready`, and end it after the body, or when this process ends anyhow.

    `ending` is the signal that ends it; a mount needs SIGTERM, on which it unmounts.
    """
    # Not `preexec_fn`: the child of a process with threads may wait forever for a lock of one of them.
    bound = [program("setpriv", "util-linux"), "--pdeathsig", signal.Signals(ending).name]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*bound, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            start_new_session=True,  # Ctrl-C reaches the tests first, which then end it
        )
    kept.add(process.pid)  # it may start in one test and end long after it
    try:
        deadline = time.monotonic() + _START_S
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")[-4000:]
                raise RuntimeError(
                    f"{' '.join(command)} did not start (exit code {process.returncode}):\n{text}"
                )
            time.sleep(0.05)
        yield process
    finally:
        process.send_signal(ending)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        kept.discard(process.pid)
