"""Command that repairs a damaged file, for messages."""

from __future__ import annotations

import os
import re
import shlex
import string

__all__ = ["as_argument", "repair_command"]

_SAFE = string.ascii_letters + string.digits + " /._-"
_COMPRESSED = (".gz", ".gzip", ".zz", ".zlib", ".zst", ".zstd")
_RANK_FOLDER = re.compile(r"rank-\d{5}", re.ASCII)


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
        path = os.path.dirname(folder)
        return f"shardkeep repair {as_argument(path)} {as_argument(f'{path}.repaired')}"
    stem, extension = os.path.splitext(name)
    if extension.lower() in _COMPRESSED:
        stem, inner = os.path.splitext(stem)
        extension = inner + extension
    output = os.path.join(folder, f"{stem}.repaired{extension}")
    return f"shardkeep repair {as_argument(path)} {as_argument(output)}"


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
