"""URLs of objects in remote stores, as fsspec writes them, and the check of path arguments.

A URL may be chained: filters in front of it (``simplecache::s3://…``), and the place of an archive after it
(``zip://train.tfrecord::s3://bucket/all.zip``). The path of the object is in the first part with a scheme.
"""

from __future__ import annotations

import glob
import os
import re

from shardkeep._paths_in_messages import without_passwords
from shardkeep.errors import PlanError

__all__ = [
    "display",
    "is_url",
    "join_url",
    "local_path",
    "path_or_url",
    "split_url",
    "url_name",
    "url_parent",
]

# `pathlib` makes one slash of two, after which only well-known schemes differ from the name of a folder.
_URL = re.compile(
    r"([a-z][a-z\d+.-]*::)*([a-z][a-z\d+.-]*://"
    r"|(s3[an]?|gs|gcs|hdfs|webhdfs|viewfs|https?|az|abfss?|adl|wasbs?|oss|dbfs|hf|s?ftp|file):/)",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"[a-z][a-z\d+.-]*://", re.IGNORECASE)
_QUERY = re.compile(r"\?[^?]*=.*$")


def is_url(path: object) -> bool:
    """Return whether a path is a URL of a remote store.

    Examples
    --------
    >>> is_url("s3://bucket/train.tfrecord"), is_url("/data/train.tfrecord"), is_url("./s3:/run")
    (True, False, False)
    """
    return isinstance(path, str) and _URL.match(path) is not None


def local_path(path: str | bytes | os.PathLike[str]) -> str:
    """Return a path that a caller passes, as a str; refuse a URL, which would be the name of a local folder.

    Every path argument of a public function passes through here, or through `path_or_url`.

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
    name = _decoded(path)
    if is_url(name):
        _refuse_file_url(name)
        raise PlanError(
            f"{display(name)} is a URL, and this works with local files only:"
            " mount or copy it, and pass the local path",
            path=display(name),
        )
    return name


def path_or_url(path: str | bytes | os.PathLike[str]) -> str:
    """Return a path or a URL that a caller passes to a function that reads remote objects too, as a str.

    Raises
    ------
    PlanError
        `path` is not a path; or a URL of a local file, or one whose second slash `pathlib` has removed.
    """
    name = _decoded(path)
    if is_url(name):
        _refuse_file_url(name)
        if _SCHEME.search(name) is None:
            raise PlanError(f"{name!r} is a URL that has passed through pathlib: pass it as a str", path=name)
    return name


def _decoded(path: str | bytes | os.PathLike[str]) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        raise PlanError(f"a path must be a str or os.PathLike, not {path!r:.60}") from None


def _refuse_file_url(name: str) -> None:
    if name[:5].lower() == "file:":
        raise PlanError(f"{name} is a URL of a local file: pass the path without the scheme", path=name)


# -- the parts of a URL ------------------------------------------------------------------------------------


def split_url(url: str) -> tuple[str, str, str]:
    """Split a URL into what is before the path of its object, the path, and what is after it.

    Examples
    --------
    >>> split_url("s3://bucket/train/a.tfrecord")
    ('s3://bucket', '/train/a.tfrecord', '')
    >>> split_url("zip://a.tfrecord::https://host/all.zip?token=1")
    ('zip://', 'a.tfrecord', '::https://host/all.zip?token=1')
    """
    scheme = _SCHEME.search(url)
    assert scheme is not None, url
    chain = url.find("::", scheme.end())
    end = len(url) if chain < 0 else chain
    if scheme.group().lower() in ("http://", "https://"):
        query = re.search(r"[?#]", url[scheme.end() : end])
        end = end if query is None else scheme.end() + query.start()
    # Archives and memory have no host: the path begins at once.
    slash = scheme.end() if chain >= 0 else url.find("/", scheme.end(), end)
    start = end if slash < 0 else slash
    return url[:start], url[start:end], url[end:]


def url_name(url: str) -> str:
    """Return the last part of the path of an object.

    Examples
    --------
    >>> url_name("zip://data/a.tfrecord::s3://bucket/all.zip")
    'a.tfrecord'
    """
    return split_url(url)[1].rpartition("/")[2]


def url_parent(url: str) -> str:
    """Return the URL of the folder of an object, without a slash at its end.

    Examples
    --------
    >>> url_parent("s3://bucket/train/a.tfrecord"), url_parent("s3://bucket/a.tfrecord")
    ('s3://bucket/train', 's3://bucket')
    """
    before, path, after = split_url(url.rstrip("/"))
    return before + path.rpartition("/")[0] + after


def is_pattern(url: str) -> bool:
    """Return whether the path of a URL has wildcards; a query has none.

    Examples
    --------
    >>> is_pattern("s3://bucket/*.tfrecord"), is_pattern("https://host/a.tfrecord?b")
    (True, False)
    """
    return glob.has_magic(split_url(url)[1])


def join_url(folder: str, name: str) -> str:
    """Return the URL of a name below a folder.

    Examples
    --------
    >>> join_url("s3://bucket/run/", "all.h5")
    's3://bucket/run/all.h5'
    """
    before, path, after = split_url(folder)
    # An archive has no folder above its first names.
    slash = "" if before.endswith("://") and not path else "/"
    return before + path.rstrip("/") + slash + name + after


def display(url: str) -> str:
    """Return a URL as errors and reports show it: without passwords and without the values of a query.

    Examples
    --------
    >>> display("s3://AKIA:secret/key@bucket/a.tfrecord"), display("https://host/a.tfrecord?sig=abc")
    ('s3://bucket/a.tfrecord', 'https://host/a.tfrecord?…')
    """
    return "::".join(_QUERY.sub("?…", without_passwords(part)) for part in url.split("::"))
