from __future__ import annotations

import pytest

from shardkeep.files.remote.errors import converted
from shardkeep.files.remote.s3_content import ContentError, content_reader

TEXT = (
    "Generic S3 error: Error performing GET http://host/b/a in 2 ms - Server returned non-2xx status code:"
    " 503: <Error><RequestId>R7</RequestId></Error> Debug source: Generic { a page }"
)


def test_an_error_of_obstore_has_a_status_and_a_request() -> None:
    error = converted(ContentError(Exception(TEXT)), "read", "s3://b/a")
    assert str(error) == (
        "cannot read s3://b/a with status 503, request R7 (ContentError: Generic S3 error: Error performing"
        " GET http://host/b/a in 2 ms): try again later"
    )


def test_an_error_without_an_answer_is_transient() -> None:
    assert converted(ContentError(Exception("HTTP error: connection reset")), "read", "s3://b/a").transient  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["PermissionDeniedError", "UnauthenticatedError", "PreconditionError"])
def test_an_error_of_a_final_kind_is_not_transient(name: str) -> None:
    error = converted(ContentError(type(name, (Exception,), {})("refused")), "read", "s3://b/a")
    assert not error.transient  # type: ignore[attr-defined]


@pytest.mark.parametrize("url", ["memory://b/a", "gs://b/a", "https://host/a"])
def test_other_stores_are_read_by_their_back_ends(url: str) -> None:
    assert content_reader(url, 1.0) is None
