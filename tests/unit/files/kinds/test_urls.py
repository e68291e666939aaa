from __future__ import annotations

from pathlib import Path

import pytest

from shardkeep.errors import PlanError
from shardkeep.files.kinds.urls import (
    display,
    join_url,
    local_path,
    path_or_url,
    split_url,
    url_name,
    url_parent,
)


@pytest.mark.parametrize(
    ("path", "is_url"),
    [
        (Path("s3://bucket/run"), True),
        ("HDFS://namenode:8020/run", True),
        ("file:///data/run", True),
        ("zip://a.csv::https://host/a.zip", True),
        ("./s3:/bucket/run", False),
        ("/data/run:1/a::b", False),
        ("run:1/a", False),
        ("host:/export/run", False),
        ("c:/run", False),
        ("a b://c", False),
    ],
)
def test_what_is_a_url(path: str | Path, is_url: bool) -> None:
    if is_url:
        with pytest.raises(PlanError, match="is a URL"):
            local_path(path)
    else:
        assert local_path(path) == path


@pytest.mark.parametrize("path", [None, 3, ["a"], {"a": 1}])
def test_what_is_not_a_path(path: object) -> None:
    with pytest.raises(PlanError, match=r"a path must be a str or os.PathLike, not "):
        local_path(path)  # type: ignore[arg-type]


def test_a_path_of_bytes_is_decoded_as_the_system_does() -> None:
    assert local_path(b"a\xff") == "a\udcff"


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("s3://bucket/a/b", ("s3://bucket", "/a/b", "")),
        ("s3://bucket", ("s3://bucket", "", "")),
        ("sftp://me@host:22/p/x@y", ("sftp://me@host:22", "/p/x@y", "")),
        ("simplecache::s3://bucket/a", ("simplecache::s3://bucket", "/a", "")),
        ("zip://a/b::s3://bucket/z.zip", ("zip://", "a/b", "::s3://bucket/z.zip")),
        ("https://host/a?b=/c", ("https://host", "/a", "?b=/c")),
        ("s3://bucket/a?.tfrecord", ("s3://bucket", "/a?.tfrecord", "")),
    ],
)
def test_the_parts_of_a_url(url: str, parts: tuple[str, str, str]) -> None:
    assert split_url(url) == parts


@pytest.mark.parametrize("folder", ["s3://bucket/a", "memory://a", "zip://a::s3://b/z.zip", "s3://bucket"])
def test_a_name_joined_to_a_folder_is_below_it(folder: str) -> None:
    url = join_url(folder, "x.tfrecord")
    assert (url_parent(url), url_name(url)) == (folder, "x.tfrecord")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://key:se/cret@bucket/a", "s3://bucket/a"),
        ("sftp://me:pass@host:22/a@b", "sftp://host:22/a@b"),
        ("sftp://me@host:22/a@b", "sftp://me@host:22/a@b"),
        ("sftp://host:22/a@b", "sftp://host:22/a@b"),
        ("zip://x::https://u:p@host/z.zip?sig=1&t=2", "zip://x::https://host/z.zip?…"),
        ("az://c/a?sv=1&sig=2", "az://c/a?…"),
        ("s3://bucket/a?.tfrecord", "s3://bucket/a?.tfrecord"),
    ],
)
def test_a_shown_url_has_no_credentials(url: str, shown: str) -> None:
    assert display(url) == shown


def test_a_url_is_accepted_where_objects_are_read() -> None:
    assert path_or_url("s3://bucket/a") == "s3://bucket/a"
    assert path_or_url(Path("/data/a")) == "/data/a"
    with pytest.raises(PlanError, match="has passed through pathlib"):
        path_or_url(Path("s3://bucket/a"))
    with pytest.raises(PlanError, match="pass the path without the scheme"):
        path_or_url("file:///data/a")
