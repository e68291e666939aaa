"""Check of the path arguments of public functions."""

from __future__ import annotations

import os
import re

from shardkeep.errors import PlanError

__all__ = ["local_path"]

# A URL, also a chained one of fsspec ("simplecache::s3://…"). `pathlib` makes one slash of two, after which
# only well-known schemes differ from the name of a folder.
_URL = re.compile(
    r"([a-z][a-z\d+.-]*::)*([a-z][a-z\d+.-]*://"
    r"|(s3[an]?|gs|gcs|hdfs|webhdfs|viewfs|https?|az|abfss?|adl|wasbs?|oss|dbfs|hf|s?ftp|file):/)",
    re.IGNORECASE,
)


def local_path(path: str | bytes | os.PathLike[str]) -> str:
    """Return a path that a caller passes, as a str; refuse a URL, which would be the name of a local folder.

    Every path argument of a public function passes through here.

    Parameters
    ----------
    path : str, bytes or os.PathLike

    Returns
    -------
    str
        The path, unchanged; bytes are decoded as `os.fsdecode` does.

    Raises
    ------
    PlanError
        `path` is a URL, or not a path.

    Examples
    --------
    >>> local_path("./s3:/run")
    './s3:/run'
    """
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise PlanError(f"a path must be a str or os.PathLike, not {path!r:.60}") from None
    if _URL.match(name):
        is_file = name[:5].lower() == "file:"
        advice = (
            "pass the path without the scheme" if is_file else "mount or copy it, and pass the local path"
        )
        raise PlanError(
            f"{name} is a URL, and Shardkeep reads and writes local files only: {advice}", path=name
        )
    return name
