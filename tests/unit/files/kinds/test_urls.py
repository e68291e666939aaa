from __future__ import annotations

from pathlib import Path

import pytest

from shardkeep.errors import PlanError
from shardkeep.files.kinds.urls import local_path


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
