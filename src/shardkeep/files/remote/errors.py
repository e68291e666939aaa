"""Conversion of the errors of back ends to those of Shardkeep.

Each back end has its own classes: botocore, aiohttp, httpx, Azure, asyncssh and others keep the status of an
answer, and the identifier of a request, in attributes of different names. s3fs raises an `OSError` whose
cause is the error of botocore, so the chain of causes is searched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from shardkeep.errors import ExistsError, MissingExtraError, NotFoundError, RemoteError, ShardkeepError
from shardkeep.files.kinds.urls import display

__all__ = ["causes", "converted", "silent"]

_TRANSIENT = {408, 423, 425, 429, 500, 502, 503, 504, 509}
_REQUEST_IDS = ("x-amz-request-id", "x-ms-request-id", "x-guploader-uploadid", "x-request-id")
_ADVICE = {
    401: "pass credentials as the back end of fsspec takes them (environment, its files, or fsspec.config)",
    403: "check the credentials and the permissions of the bucket, and that the name is right",
    412: "another writer has changed it: read it again",
}
# Names of classes, since no back end need be installed. Resets, closed connections, short bodies, and
# listings of WebDAV that end in an error, because a file was renamed meanwhile.
_TRANSIENT_CLASSES = {
    "ClientConnectionError",
    "ClientPayloadError",
    "ConnectError",
    "ConnectionClosedError",
    "ConnectionLost",
    "ContentError",
    "EndpointConnectionError",
    "FSTimeoutError",
    "HTTPClientError",
    "IncompleteRead",
    "IncompleteReadError",
    "NetworkError",
    "ParseError",
    "ProtocolError",
    "ProxyError",
    "ReadTimeoutError",
    "RemoteProtocolError",
    "ResponseStreamingError",
    "TransportError",
}


def converted(error: Exception, what: str, url: str) -> ShardkeepError:
    """Return the error of Shardkeep for an error of a back end.

    Parameters
    ----------
    error : Exception
    what : str
        The operation, as "read" or "list".
    url : str
        URL of the object or folder.

    Returns
    -------
    ShardkeepError
        `NotFoundError`, `ExistsError`, `MissingExtraError` or `RemoteError`, with the URL as its path. An
        error of Shardkeep itself is returned as it is.
    """
    if isinstance(error, ShardkeepError):
        return error
    shown, status = display(url), _status(error)
    if isinstance(error, ImportError):
        return _missing_back_end(error, what, url)
    # fsspec's HTTP raises FileNotFoundError for each failure, with the reason as its cause.
    absent = isinstance(error, (FileNotFoundError, NotADirectoryError)) and not _is_transient(error, status)
    if status == 404 or (absent and status is None):
        return NotFoundError(f"{shown}: no such object; check its name", path=shown)
    if isinstance(error, FileExistsError):
        return ExistsError(f"{shown} exists already", path=shown)
    request_id = _request_id(error)
    answer = f" with status {status}" if status else ""
    number = f", request {request_id}" if request_id else ""
    said = list(causes(error))[-1] if isinstance(error, FileNotFoundError) else error
    reason = f"{type(said).__name__}: {_text(said)}".strip(": ")
    advice = _ADVICE.get(status or 0)
    if advice is None:
        advice = "try again later" if _is_transient(error, status) else "check the URL and its options"
    if isinstance(error, PermissionError) and status is None:
        advice = _ADVICE[403]
    message = f"cannot {what} {shown}{answer}{number} ({reason:.300}): {advice}"
    failure = RemoteError(message, path=shown)
    failure.status, failure.request_id = status, request_id
    failure.transient = _is_transient(error, status)
    return failure


def silent(what: str, url: str, limit_s: float) -> RemoteError:
    """Return the error for a store that does not answer."""
    shown = display(url)
    failure = RemoteError(
        f"cannot {what} {shown}: the store did not answer for {limit_s:g} s; check the network and the"
        " address, or set SHARDKEEP_REMOTE_TIMEOUT_S to a longer time",
        path=shown,
    )
    failure.transient = True
    return failure


def causes(error: BaseException) -> Iterator[BaseException]:
    """Return an error and those that it was raised from or after."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        yield following
        seen.add(id(following))
        following = following.__cause__ or following.__context__


def _status(error: BaseException) -> int | None:
    for one in causes(error):
        if isinstance(one, OSError) and str(one).startswith("Forbidden: "):  # gcsfs, without the number
            return 403
        response = getattr(one, "response", None)
        if isinstance(response, Mapping):
            answered: Any = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:
            answered = getattr(response, "status_code", None)
        # aiohttp has both `status` and a deprecated `code`.
        name = next(
            (
                name
                for name in ("status", "status_code", "code")
                if hasattr(type(one), name) or name in vars(one)
            ),
            "",
        )
        for candidate in (answered, getattr(one, name, None)):
            if isinstance(candidate, str) and candidate.isdecimal():  # gcsfs
                candidate = int(candidate)
            if isinstance(candidate, int) and 100 <= candidate < 600:
                return int(candidate)
    return None


def _request_id(error: BaseException) -> str | None:
    for one in causes(error):
        response = getattr(one, "response", None)
        headers: Any = getattr(one, "headers", None) or getattr(response, "headers", None)
        if isinstance(response, Mapping):
            metadata = response.get("ResponseMetadata", {})
            if metadata.get("RequestId"):
                return str(metadata["RequestId"])
            headers = metadata.get("HTTPHeaders")
        for name in _REQUEST_IDS if isinstance(headers, Mapping) else ():
            for key, value in headers.items():
                if str(key).lower() == name:
                    return str(value)
    return None


def _is_transient(error: BaseException, status: int | None) -> bool:
    if status is not None:
        return status in _TRANSIENT or status >= 520
    return any(
        isinstance(one, (ConnectionError, TimeoutError, asyncio.TimeoutError, EOFError))
        or any(
            base.__name__ in _TRANSIENT_CLASSES and not base.__module__.startswith("webdav4")
            for base in type(one).__mro__  # of webdav4 every error is a ClientError
        )
        for one in causes(error)
    )


def _text(error: BaseException) -> str:
    # The texts of some back ends have the whole URL, with its signature.
    return " ".join(display(word) for word in str(error).split())


def _missing_back_end(error: ImportError, what: str, url: str) -> MissingExtraError:
    shown = display(url)
    others = "for others: pip install gcsfs, adlfs, sshfs, webdav4[fsspec] or hdfs-native"
    reason = " ".join(str(error).split())
    return MissingExtraError(
        f"cannot {what} {shown}: its back end cannot be imported ({reason:.200}): pip install"
        f" 'shardkeep[remote]' for S3; {others}",
        path=shown,
    )
