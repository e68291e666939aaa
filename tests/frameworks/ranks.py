"""Ranks of a process group, as processes of a test module that is its own program."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]


def run_ranks(module: str, size: int, *arguments: object) -> tuple[list[int], str]:
    """Run `python -m MODULE ARGUMENTS` on each rank; return the exit codes and what all printed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    children = []
    for rank in range(size):
        environment = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        }
        children.append(
            subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        printed = "".join(child.communicate(timeout=PATIENCE_S)[0] for child in children)
    finally:
        for child in children:
            child.kill()
            child.wait()
    return [child.returncode for child in children], printed
