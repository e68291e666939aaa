"""Storage of index files, and the check that they match their shards.

An index file is in the folder of its shard, ``<shard>.skidx``, or in a cache folder under a name derived from
the shard's absolute path. Both are read, unless another user may have made them (`read_index_file`).
`build_index` writes into the folder of the shard, or if that fails, into the cache. A reader writes into the
cache, since a pattern like ``train*`` of another tool would match an index file in the folder of the shards.
An index file that cannot be read counts as absent, for every reader. One that cannot be stored is an error of
`build_index`, which was called for it, and never of a reader.

The environment variable ``SHARDKEEP_INDEX`` changes this: ``beside`` (readers write into the folder of the
shard too), ``cache`` (nothing is written into the folders of the data), ``off`` (index files are neither read
nor written). ``SHARDKEEP_INDEX_DIR`` is the cache folder, by default ``$XDG_CACHE_HOME/shardkeep/index``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from shardkeep._paths_in_messages import shown
from shardkeep.errors import DurabilityError, PlanError
from shardkeep.files.durable import durably
from shardkeep.files.publish import publish_sidecar
from shardkeep.files.remote.cache import user_folder
from shardkeep.tfrecord.index.binary import encode, read_index_file
from shardkeep.tfrecord.index.fingerprint import Fingerprint, frames_fit, sample_blocks

__all__ = ["cache_folder", "find", "index_mode", "index_paths", "save"]

_SUFFIX = ".skidx"


def index_mode(*, automatic: bool) -> str:
    """Return the value of ``SHARDKEEP_INDEX``, or its default: "beside", or "cache" if `automatic`.

    Raises
    ------
    PlanError
        It has another value than the three.
    """
    mode = os.environ.get("SHARDKEEP_INDEX") or ("cache" if automatic else "beside")
    if mode not in ("beside", "cache", "off"):
        raise PlanError(f'SHARDKEEP_INDEX={mode!r} is not valid: use "beside", "cache" or "off"')
    return mode


def index_paths(path: str, *, automatic: bool = False) -> Iterator[str]:
    """Yield the possible paths of the index file of a shard, in the order of preference.

    Parameters
    ----------
    path : str
    automatic : bool
        True if the index is stored without a request by the user.

    Raises
    ------
    PlanError
        ``SHARDKEEP_INDEX`` has another value than the three; raised by the first ``next``.

    Examples
    --------
    >>> next(index_paths("train.tfrecord"))
    'train.tfrecord.skidx'
    """
    mode = index_mode(automatic=automatic)
    if mode == "beside":
        yield path + _SUFFIX
    if mode != "off":
        yield os.path.join(cache_folder(), _cache_name(path))


def find(path: str, fd: int, status: os.stat_result) -> npt.NDArray[np.uint64] | None:
    """Return the offsets of a stored index that matches the shard, or the old part of a shard that grew.

    Parameters
    ----------
    path : str
        The shard.
    fd, status
        Descriptor and status of the open shard.

    Returns
    -------
    ndarray of uint64, shape (records + 1,), or None
        If the last offset is below the size of the shard, the shard has grown and these are the offsets of
        its old part.
    """
    best: npt.NDArray[np.uint64] | None = None
    for index_path in index_paths(path):
        found = read_index_file(index_path, shard_bytes=status.st_size, shard=status)
        if found is None:
            continue
        starts, then = found
        whole = then.size_bytes == status.st_size
        # A local copy of a remote shard has the time at which it was fetched.
        if whole and then.mtime_ns != status.st_mtime_ns and shown(path) == path:
            continue
        try:
            now, blocks = sample_blocks(fd, then.size_bytes, then.mtime_ns)
        except OSError:
            return None  # the scan raises the error of the shard
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
    automatic: bool = False,
) -> str | None:
    """Store an index if the shard is still the scanned one.

    Parameters
    ----------
    path : str
        The shard.
    status, fingerprint
        Status and fingerprint of the file, from before the scan. The order matters: if the file is rewritten
        during the scan, within the granularity of its modification time, this fingerprint is of content that
        no longer exists, and the index is never used.
    starts : ndarray of uint64, shape (records + 1,)
    automatic : bool
        As in `index_paths`.

    Returns
    -------
    str or None
        Path of the index file. None if the shard has changed; and with `automatic` also if no path is
        writable.

    Raises
    ------
    DurabilityError
        No path is writable, and the index was requested. The message has the reason for each path.

    Notes
    -----
    The file appears whole or not at all, also when several processes store it at once: the last one stays. It
    is not synced, since its checksum detects damage by a power cut.
    """
    if int(starts[-1]) != status.st_size:
        return None
    try:
        if not _is_unchanged(status, os.stat(path)):
            return None
    except OSError:
        return None
    data = encode(starts, fingerprint)
    failures = []
    for index_path in index_paths(path, automatic=automatic):
        if os.path.islink(index_path):
            # Perhaps intended; a link that appears later is replaced, not followed.
            failures.append(f"{index_path!r} is a symbolic link")
            continue
        try:
            if index_path != path + _SUFFIX:
                with durably("create the folder of", index_path):
                    os.makedirs(os.path.dirname(index_path), mode=0o700, exist_ok=True)
            # Writable by its owner only: other users would ignore it otherwise.
            with publish_sidecar(index_path, mode=0o644) as file:
                file.write(data)
            return index_path
        except OSError as error:  # no folder, no permission, no space
            failures.append(str(error))
    if failures and not automatic:
        message = f"the index of {path!r} was not stored: {'; and '.join(failures)}"
        raise DurabilityError(f"{message}. SHARDKEEP_INDEX_DIR can name another folder", path=path)
    return None


def _is_unchanged(before: os.stat_result, now: os.stat_result) -> bool:
    return (
        os.path.samestat(before, now)
        and before.st_size == now.st_size
        and before.st_mtime_ns == now.st_mtime_ns
    )


def cache_folder() -> str:
    """Return the cache folder."""
    return os.environ.get("SHARDKEEP_INDEX_DIR") or os.path.join(user_folder(), "index")


def _cache_name(path: str) -> str:
    whole = os.fsencode(os.path.abspath(path))
    return hashlib.sha256(whole).hexdigest()[:32] + _SUFFIX
