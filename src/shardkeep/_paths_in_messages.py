"""Texts about paths: URLs of local copies, without passwords, and the command that repairs a damaged file.

Functions that read remote objects read local copies of them. An error or a report has the path of such a copy
where it is made; `shown` replaces the folder of the copies by the URL of their folder. Errors and warnings
pass through `shown` when they are made, so no function needs to convert those of another.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import re
import shlex
import string
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = [
    "as_argument",
    "copy_of",
    "forget_folder",
    "repair_command",
    "repair_run_command",
    "show_as",
    "shown",
    "with_texts",
    "without_passwords",
]

_SAFE = string.ascii_letters + string.digits + " /._-"
_COMPRESSED = (".gz", ".gzip", ".zz", ".zlib", ".zst", ".zstd")
# A user with a password, also one that has a slash; not a host with a port.
_CREDENTIALS = re.compile(r"(://)[^:/@\s]*:(?!\d+(?:/|$))[^@\s]*@")
_RANK_FOLDER = re.compile(r"rank-\d{5}", re.ASCII)
_Path = TypeVar("_Path")

_urls: dict[str, str] = {}


def show_as(folder: str, url: str) -> None:
    """Show the paths below a folder of local copies as names below a URL."""
    _urls[folder] = url


def forget_folder(folder: str) -> None:
    """Show the paths of a folder as they are, since it has no copies any more."""
    _urls.pop(folder, None)


def copy_of(path: _Path) -> _Path | str:
    """Return the path of the local copy that an error shows as a URL; any other path as it is."""
    if not isinstance(path, str) or "://" not in path:
        return path
    for folder, url in list(_urls.items()):
        above = url.rstrip("/") + "/"
        if path.startswith(above):
            local = folder + "/" + path[len(above) :]
            if os.path.exists(local):
                return local
    return path


def shown(text: str) -> str:
    """Return a text in which folders of local copies are replaced by their URLs, and URLs have no password.

    Examples
    --------
    >>> show_as("/cache/views/1", "s3://bucket/train")
    >>> shown("cannot read '/cache/views/1/a.tfrecord'")
    "cannot read 's3://bucket/train/a.tfrecord'"
    >>> forget_folder("/cache/views/1")
    """
    for folder, url in list(_urls.items()) if _urls else ():
        if folder in text:
            text = text.replace(folder + "/", url.rstrip("/") + "/").replace(folder, url)
    return without_passwords(text)


def without_passwords(text: str) -> str:
    """Return a text without the users and passwords of URLs.

    Examples
    --------
    >>> without_passwords("cannot read sftp://me:secret@host/a.tfrecord")
    'cannot read sftp://host/a.tfrecord'
    """
    return _CREDENTIALS.sub(r"\1", text) if "://" in text and "@" in text else text


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a report or of an item of work in which each text was changed.

    Examples
    --------
    >>> with_texts({"path": "a", "records": [3, ("b", None)]}, str.upper)
    {'PATH': 'A', 'RECORDS': [3, ('B', None)]}
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        items = [with_texts(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {with_texts(key, change): with_texts(item, change) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(changed, field.name, with_texts(getattr(value, field.name), change))
        return changed
    return value


def repair_command(path: str) -> str:
    """Return the command that repairs a file, or the folder of the run that a segment is in.

    Examples
    --------
    >>> repair_command("data/train.tfrecord.gz")
    'shardkeep repair data/train.tfrecord.gz data/train.repaired.tfrecord.gz'
    >>> repair_command("run/rank-00003/00000007-step-100.h5")
    'shardkeep repair run run.repaired'
    """
    folder, name = os.path.split(path)
    if _RANK_FOLDER.fullmatch(os.path.basename(folder)) and os.path.dirname(folder):
        return repair_run_command(os.path.dirname(folder))
    stem, extension = os.path.splitext(name)
    if extension.lower() in _COMPRESSED:
        stem, inner = os.path.splitext(stem)
        extension = inner + extension
    output = os.path.join(folder, f"{stem}.repaired{extension}")
    return f"shardkeep repair {as_argument(path)} {as_argument(output)}"


def repair_run_command(run: str) -> str:
    """Return the command that repairs the folder of a run, which may end with a slash.

    Examples
    --------
    >>> repair_run_command("run/")
    'shardkeep repair run run.repaired'
    """
    run = run.rstrip("/") or run
    return f"shardkeep repair {as_argument(run)} {as_argument(f'{run}.repaired')}"


def as_argument(path: str) -> str:
    """Return a path as an argument for a shell; other bytes than printable text as bash and zsh take them.

    Examples
    --------
    >>> as_argument("-a b.tfrecord")
    "'./-a b.tfrecord'"
    """
    path = os.path.join(".", path) if path.startswith("-") else path
    if path.isprintable():
        return shlex.quote(path)
    codes = os.fsencode(path)
    return "$'" + "".join(chr(one) if chr(one) in _SAFE else f"\\x{one:02x}" for one in codes) + "'"
