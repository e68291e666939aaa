"""Stores of the live tests, each started when a test first needs it and shared by the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.remote.servers import azure, fault_proxy, google, hdfs, mounts, s3, sftp, webdav
from tests.frameworks.remote.servers.store import Store

Folders = pytest.TempPathFactory


@pytest.fixture(scope="session")
def seaweedfs_server(tmp_path_factory: Folders) -> Iterator[Store]:
    with s3.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as store:
        yield store


@pytest.fixture(scope="session")
def rclone_s3_server(tmp_path_factory: Folders) -> Iterator[Store]:
    with s3.rclone_s3(tmp_path_factory.mktemp("rclone-s3")) as store:
        yield store


@pytest.fixture(scope="session")
def azurite_server(tmp_path_factory: Folders) -> Iterator[Store]:
    with azure.azurite(tmp_path_factory.mktemp("azurite")) as store:
        yield store


@pytest.fixture(scope="session")
def fake_gcs_server(tmp_path_factory: Folders) -> Iterator[Store]:
    with google.fake_gcs(tmp_path_factory.mktemp("fake-gcs")) as store:
        yield store


@pytest.fixture(scope="session")
def webdav_server(tmp_path_factory: Folders) -> Iterator[Store]:
    with webdav.rclone_webdav(tmp_path_factory.mktemp("webdav")) as store:
        yield store


@pytest.fixture(scope="session")
def sshd_server(tmp_path_factory: Folders) -> Iterator[sftp.Sshd]:
    with sftp.sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: Folders) -> Iterator[Store]:
    with hdfs.mini_dfs(tmp_path_factory.mktemp("hdfs")) as store:
        yield store


@pytest.fixture(scope="session")
def sshfs_points(sshd_server: sftp.Sshd, tmp_path_factory: Folders) -> Iterator[list[Path]]:
    with mounts.sshfs_mounts(sshd_server, tmp_path_factory.mktemp("sshfs")) as points:
        yield points


@pytest.fixture(scope="session")
def juicefs_points(tmp_path_factory: Folders) -> Iterator[list[Path]]:
    with mounts.juicefs_mounts(tmp_path_factory.mktemp("juicefs")) as points:
        yield points


def _of_this_test(store: Store, request: pytest.FixtureRequest) -> Store:
    """Return the store with a root of the test, so that tests do not see each other's files."""
    name = "".join(one if one.isalnum() else "-" for one in request.node.name)
    return store._replace(root=f"{store.root}/{name}")


def _store_of(server: str, make: Callable[[Any], Store] = lambda store: store) -> Any:
    """Return the fixture of a store of the test, on a server of the session."""

    @pytest.fixture
    def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
        return _of_this_test(make(request.getfixturevalue(server)), request).use(monkeypatch)

    return store


s3_store = _store_of("seaweedfs_server")
unconditional_s3_store = _store_of("rclone_s3_server")  # ignores the conditions of writes
azure_store = _store_of("azurite_server")
google_store = _store_of("fake_gcs_server")
webdav_store = _store_of("webdav_server")
sftp_store = _store_of("sshd_server", sftp.sftp_store)
hdfs_store = _store_of("hdfs_server")


@pytest.fixture
def memory_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """fsspec's store in the memory of one process."""
    return _of_this_test(Store("memory://files", "memory", {}, {}, 0), request).use(monkeypatch)


_STORES = ["s3", "unconditional_s3", "azure", "google", "webdav", "sftp", "hdfs", "memory"]


@pytest.fixture(params=_STORES)
def any_store(request: pytest.FixtureRequest) -> Store:
    """Each store in turn."""
    store: Store = request.getfixturevalue(f"{request.param}_store")
    return store


@pytest.fixture
def faulty_s3(
    seaweedfs_server: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Store, fault_proxy.FaultProxy]]:
    """S3 through a proxy that injects faults; its store has no retries left over from other tests."""
    with fault_proxy.FaultProxy(seaweedfs_server.port) as proxy:
        yield _of_this_test(s3.s3_store(proxy.port), request).use(monkeypatch), proxy


@pytest.fixture
def faulty_azure(
    azurite_server: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Store, fault_proxy.FaultProxy]]:
    """Azure through a proxy; its client repeats at once, not after 15 s and more."""
    from azure.storage.blob.aio import ExponentialRetry

    monkeypatch.setattr(ExponentialRetry, "get_backoff_time", lambda *_: 0.1)
    with fault_proxy.FaultProxy(azurite_server.port) as proxy:
        yield _of_this_test(azure.azure_store(proxy.port), request).use(monkeypatch), proxy


@pytest.fixture
def faulty_google(
    fake_gcs_server: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Store, fault_proxy.FaultProxy]]:
    """Google through a proxy; the parts of objects of 5 MB and more go past it."""
    with fault_proxy.FaultProxy(fake_gcs_server.port) as proxy:
        yield _of_this_test(google.gcs_store(proxy.port), request).use(monkeypatch), proxy
