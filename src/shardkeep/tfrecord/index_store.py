"""Where index files are kept, and which of them still fit their shards.

An index file is beside its shard, ``<shard>.skidx``, or in a cache folder under a name made of the
shard's absolute path. Both are read, unless another user may have made them (`read_index_file`). What
`build_index` makes goes beside the shard, or where that cannot be written, into the cache; what a reader
makes for itself goes into the cache, since a pattern like ``train*`` of another tool would take a file
beside the shards for a shard. Nothing here raises because of an index: one that cannot be read is not
there, and one that cannot be stored is not stored.

The environment variable ``SHARDKEEP_INDEX`` chooses otherwise: ``beside`` (a reader's too), ``cache``
(never in the folders of the data), ``off`` (neither read nor store any). ``SHARDKEEP_INDEX_DIR`` is the
cache folder, by default ``$XDG_CACHE_HOME/shardkeep/index``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from shardkeep.errors import PlanError
from shardkeep.files.publish import publish_sidecar
from shardkeep.tfrecord.index_file import encode, read_index_file
from shardkeep.tfrecord.index_fingerprint import Fingerprint, frames_fit, take

__all__ = ["find", "places", "save"]

_SUFFIX = ".skidx"


def places(path: str, *, unasked: bool = False) -> Iterator[str]:
    """Yield where an index file of the shard `path` may be, in the order of preference.

    Parameters
    ----------
    path : str
    unasked : bool
        Whether it is to be stored without anybody having asked for it.

    Raises
    ------
    PlanError
        At the first, if ``SHARDKEEP_INDEX`` has another value than the three.

    Examples
    --------
    >>> next(places("train.tfrecord"))
    'train.tfrecord.skidx'
    """
    mode = os.environ.get("SHARDKEEP_INDEX") or ("cache" if unasked else "beside")
    if mode not in ("beside", "cache", "off"):
        raise PlanError(f'SHARDKEEP_INDEX={mode!r} means nothing: use "beside", "cache" or "off"')
    if mode == "beside":
        yield path + _SUFFIX
    if mode != "off":
        yield os.path.join(_cache_folder(), _cache_name(path))


def find(path: str, fd: int, status: os.stat_result) -> npt.NDArray[np.uint64] | None:
    """Return the offsets of a stored index that fits the shard as it is, or as far as it is the same.

    Parameters
    ----------
    path : str
        The shard.
    fd, status
        Of the shard, open.

    Returns
    -------
    ndarray of uint64, shape (records + 1,), or None
        If the last offset is below the size of the shard, then the shard has grown since and these are
        the offsets of its old part.
    """
    best: npt.NDArray[np.uint64] | None = None
    for place in places(path):
        found = read_index_file(place, shard_bytes=status.st_size, shard=status)
        if found is None:
            continue
        starts, then = found
        whole = then.size_bytes == status.st_size
        if whole and then.mtime_ns != status.st_mtime_ns:
            continue
        try:
            now, blocks = take(fd, then.size_bytes, then.mtime_ns)
        except OSError:
            return None  # the scan will say what is wrong with the shard
        if now != then or not frames_fit(starts, blocks):
            continue
        if whole:
            return starts
        if best is None or best[-1] < starts[-1]:
            best = starts
    return best


def save(
    path: str,
    status: os.stat_result,
    fingerprint: Fingerprint,
    starts: npt.NDArray[np.uint64],
    *,
    unasked: bool = False,
) -> str | None:
    """Store an index if the shard is still the one that was scanned, and if there is a place for it.

    Parameters
    ----------
    path : str
        The shard.
    status, fingerprint
        From before the scan, of the file that `path` named then. The order matters: if the file is
        rewritten during the scan, within the granularity of its time, this fingerprint is of a content that
        exists no more, and the index is never used.
    starts : ndarray of uint64, shape (records + 1,)
    unasked : bool
        As in `places`.

    Returns
    -------
    str or None
        Where it is.

    Notes
    -----
    It appears whole or not at all, also when several processes store it at once: the last one stays. It
    is not synced, since its checksum tells if a power cut has torn it.
    """
    if int(starts[-1]) != status.st_size:
        return None
    try:
        if not _is_unchanged(status, os.stat(path)):
            return None
    except OSError:
        return None
    data = encode(starts, fingerprint)
    for place in places(path, unasked=unasked):
        if os.path.islink(place):
            continue  # perhaps arranged so on purpose; one that comes now is replaced and not followed
        with contextlib.suppress(OSError):  # of the tree: no folder, no right, no room
            if place != path + _SUFFIX:
                os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            # Readable by all who may read it, writable by its owner only: others would not use it.
            with publish_sidecar(place, mode=0o644) as file:
                file.write(data)
            return place
    return None


def _is_unchanged(before: os.stat_result, now: os.stat_result) -> bool:
    return (
        os.path.samestat(before, now)
        and before.st_size == now.st_size
        and before.st_mtime_ns == now.st_mtime_ns
    )


def _cache_folder() -> str:
    named = os.environ.get("SHARDKEEP_INDEX_DIR")
    if named:
        return named
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "shardkeep", "index")


def _cache_name(path: str) -> str:
    whole = os.fsencode(os.path.abspath(path))
    return hashlib.sha256(whole).hexdigest()[:32] + _SUFFIX
