"""Contents of objects in S3, read by the Rust client of obstore where it is installed.

All transfers of s3fs share one Python thread, and take the GIL for each piece. obstore reads in its own
threads, and makes a read conditional on the version of the object. Endpoint, region and credentials are those
that s3fs has found, so users configure one client. Where s3fs has options that obstore has not (encryption
keys, requester pays, proxies, certificates), s3fs reads itself; also in a forked child of a process that has
used obstore, whose runtime does not survive a fork.
"""

from __future__ import annotations

import importlib.util
import os
import re
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from shardkeep.errors import RemoteError
from shardkeep.files.remote.requests import file_system

__all__ = ["ContentError", "NoRangesError", "content_reader"]

_SCHEMES = ("s3://", "s3a://")
_STATUS = re.compile(r"status code: (\d{3})|status client error \((\d{3})|status server error \((\d{3})")
_REQUEST = re.compile(r"<RequestId>([^<]{1,100})</RequestId>")

_stores: dict[tuple[int, str, float], Any] = {}
_pid: int | None = None
_making = threading.Lock()


class NoRangesError(Exception):
    """The store answers a request for a range with the status of a whole object, as rclone does."""


class ContentError(Exception):
    """An error of obstore, with the attributes that `shardkeep.files.remote.errors` reads."""

    def __init__(self, error: Exception) -> None:
        text = " ".join(str(error).split())
        # Its text is one sentence and a dump of the answer.
        super().__init__(text.partition(" Debug source:")[0].partition(" - Server returned")[0])
        found = _STATUS.search(text)
        kind = type(error).__name__
        known = {"PermissionDeniedError": 403, "UnauthenticatedError": 401, "PreconditionError": 412}
        self.status = int(next(filter(None, found.groups()))) if found else known.get(kind)
        request = _REQUEST.search(text)
        self.headers = {"x-request-id": request[1]} if request else {}


def content_reader(url: str, limit_s: float) -> Callable[[int, int | None, str | None], bytes] | None:
    """Return a function that reads an object of S3; None if s3fs must read it.

    Parameters
    ----------
    url : str
    limit_s : float
        Time limit of a read.

    Returns
    -------
    callable or None
        ``function(start, stop, version)`` returns bytes, and raises `ContentError`, `TimeoutError` or
        `FileNotFoundError`. A read of another version than `version` has the status 412.
    """
    global _pid
    if not url.lower().startswith(_SCHEMES) or importlib.util.find_spec("obstore") is None:
        return None
    if _pid not in (None, os.getpid()):
        return None
    system, path = file_system(url)
    bucket, _, key = path.partition("/")
    name = id(system), bucket, limit_s
    _pid = os.getpid()  # before a fork in another thread may copy the lock
    with _making:  # each would have its own connections
        if name not in _stores:
            _stores[name] = _store_of(system, bucket, limit_s)
        store = _stores[name]
    if store is None:
        return None

    def read(start: int, stop: int | None, version: str | None) -> bytes:
        import obstore

        options: dict[str, Any] = {}
        if stop is not None:
            options["range"] = (start, stop)
        elif start:
            options["range"] = {"offset": start}
        if version is not None:
            options["if_match"] = f'"{version}"'
        try:
            result = obstore.get(store, key, options=options)
            if version is not None and (result.meta.get("e_tag") or "").strip('"') != version:
                raise _Changed
            return memoryview(result.bytes())  # type: ignore[return-value]
        except obstore.exceptions.BaseError as error:
            if options.get("range") and "non-partial response" in str(error):
                raise NoRangesError from error
            if "timed out" in str(error) or "operation timed out" in repr(error):
                raise TimeoutError("the store did not answer") from error
            raise ContentError(error) from error

    return read


class _Changed(Exception):
    """The store ignores the condition, and has another version."""

    status = 412


def _store_of(system: Any, bucket: str, limit_s: float) -> Any:
    special = [
        system.req_kw,
        system.s3_additional_kwargs,
        system.version_aware,
        set(system.client_kwargs) - {"endpoint_url", "region_name"},
        set(system.config_kwargs) - {"max_pool_connections", "retries", "connect_timeout", "read_timeout"},
    ]
    if any(special):
        return None
    from fsspec.asyn import sync
    from obstore.store import S3Store

    client = sync(system.loop, system.set_session, timeout=limit_s)
    endpoint = str(client.meta.endpoint_url)

    def credentials() -> dict[str, Any]:
        return _credentials(system, limit_s)

    options: dict[str, Any] = (
        {"skip_signature": True} if system.anon else {"credential_provider": credentials}
    )
    time_limit = f"{max(round(limit_s * 1000), 1)}ms"
    return S3Store(
        bucket,
        endpoint=endpoint,
        region=client.meta.region_name or "us-east-1",
        virtual_hosted_style_request=False,
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "timeout": time_limit,
            "connect_timeout": time_limit,
        },
        retry_config={"max_retries": 0},  # repeated by `shardkeep.files.remote.requests`
        **options,
    )


def _credentials(system: Any, limit_s: float) -> dict[str, Any]:
    """Return the credentials that s3fs has found, also temporary ones, which it renews."""
    from fsspec.asyn import sync

    async def find() -> tuple[Any, Any]:
        found = system._s3._request_signer._credentials
        if found is None:
            return None, None
        frozen = found.get_frozen_credentials()
        frozen = await frozen if hasattr(frozen, "__await__") else frozen
        return frozen, getattr(found, "_expiry_time", None)

    frozen, expires = sync(system.loop, find, timeout=limit_s)
    if frozen is None:
        raise RemoteError("no credentials for S3 were found: set them as s3fs takes them")
    values = {"access_key_id": frozen.access_key, "secret_access_key": frozen.secret_key}
    if frozen.token:
        values["token"] = frozen.token
    is_temporary = isinstance(expires, datetime)
    return values | {"expires_at": expires.astimezone(timezone.utc) if is_temporary else None}
