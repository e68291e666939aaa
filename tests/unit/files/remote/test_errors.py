from __future__ import annotations

import pickle
from typing import Any, ClassVar
from xml.etree.ElementTree import ParseError, fromstring

import pytest

from shardkeep.errors import ExistsError, NotFoundError, RemoteError
from shardkeep.files.remote.errors import converted, silent

URL = "s3://bucket/a.tfrecord"


class BotoError(Exception):
    response: ClassVar[dict[str, Any]] = {"ResponseMetadata": {"HTTPStatusCode": 503, "RequestId": "R1"}}


class HTTPStatusError(Exception):
    class response:
        status_code = 403
        headers: ClassVar[dict[str, str]] = {"X-Request-Id": "R2"}


def test_the_status_of_a_cause_is_found() -> None:
    outer = OSError(16, "slow down")
    outer.__cause__ = BotoError()
    error = converted(outer, "read", URL)
    assert isinstance(error, RemoteError)
    assert (error.status, error.request_id, error.transient, error.path) == (503, "R1", True, URL)
    assert str(error) == (
        f"cannot read {URL} with status 503, request R1 (OSError: [Errno 16] slow down): try again later"
    )


def test_an_answer_of_httpx_is_understood() -> None:
    error = converted(HTTPStatusError("no"), "list", URL)
    assert isinstance(error, RemoteError)
    assert (error.status, error.request_id, error.transient) == (403, "R2", False)


def test_a_refusal_of_google_has_its_status() -> None:
    error = converted(OSError("Forbidden: https://storage.googleapis.com/b/bucket\nno"), "list", URL)
    assert isinstance(error, RemoteError)
    assert (error.status, error.transient) == (403, False)


@pytest.mark.parametrize(
    ("given", "expected"), [(FileNotFoundError("x"), NotFoundError), (FileExistsError("x"), ExistsError)]
)
def test_errors_of_files_keep_their_kind(given: Exception, expected: type[Exception]) -> None:
    assert type(converted(given, "read", URL)) is expected


def test_a_refused_connection_is_not_an_absent_object() -> None:
    outer = FileNotFoundError(URL)
    outer.__cause__ = ConnectionRefusedError("refused")
    error = converted(outer, "read", URL)
    assert isinstance(error, RemoteError) and error.transient


def test_a_listing_that_is_cut_by_a_rename_is_repeated() -> None:
    with pytest.raises(ParseError) as caught:
        fromstring("<D:multistatus xmlns:D='DAV:'></D:multistatus>Internal Server Error")
    error = converted(caught.value, "list", URL)
    assert isinstance(error, RemoteError) and error.transient


def test_a_remote_error_is_pickled_with_its_attributes() -> None:
    error = silent("read", URL, 3)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.path, copy.transient) == (str(error), URL, True)
