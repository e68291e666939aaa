"""Indexes of remote shards: stored next to them, or made when they are fetched.

``<shard>.skidx`` is next to a shard if the index was copied with it, or built there. All are fetched at
once, those that were built there in one object (`together`), so that a loader begins before any shard is
here. Without one, a shard is fetched and scanned. Both are kept in the cache next to the copy of that version
of the shard, and are used as long as the version is the same.

The modification time in an index is of another machine and does not count. Size and sampled blocks do: the
size when the index is read, the blocks when the shard is fetched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence

from shardkeep.errors import NotFoundError, RemoteError, ShardkeepError
from shardkeep.files.kinds.urls import display, url_parent
from shardkeep.files.remote.cache import Tick, View, object_path
from shardkeep.files.remote.store import ObjectInfo, concurrently, list_folder, read, read_many, stat
from shardkeep.files.remote.uploads import upload_file
from shardkeep.files.user_warning import warn_user
from shardkeep.tfrecord.index.binary import decode, encode
from shardkeep.tfrecord.index.fingerprint import sample_blocks
from shardkeep.tfrecord.index.scan import Starts, frame_starts
from shardkeep.tfrecord.index.store import index_mode
from shardkeep.tfrecord.index.together import read_together

__all__ = ["build_remote", "fetch_checked", "remote_starts", "stored_starts"]

_SUFFIX = ".skidx"


def remote_starts(views: Sequence[View], infos: Sequence[ObjectInfo]) -> list[Starts]:
    """Return the offsets of the frames of remote shards.

    Parameters
    ----------
    views : sequence of View
        The view of each shard.
    infos : sequence of ObjectInfo

    Raises
    ------
    CorruptRecordError, TruncatedFileError, FormatError
        A shard without an index is damaged, or of another kind.
    NotFoundError, RemoteError
        A shard cannot be fetched.
    """
    found = [_kept(info) for info in infos]
    missing = [i for i, starts in enumerate(found) if starts is None]
    if missing:
        folders = {url_parent(infos[i].url) for i in missing}
        present = {folder: {one.url: one for one in list_folder(folder, recent=True)} for folder in folders}
        contents: dict[int, bytes | memoryview] = {}
        for folder, listed in present.items():
            together = read_together(folder, listed)
            keys = {i: (infos[i].url, infos[i].version) for i in missing}
            contents |= {i: together[key] for i, key in keys.items() if key in together}
        apart = [i for i in missing if i not in contents]
        apart = [i for i in apart if infos[i].url + _SUFFIX in present[url_parent(infos[i].url)]]
        contents |= zip(apart, read_many([infos[i].url + _SUFFIX for i in apart]), strict=True)
        for i, data in contents.items():
            found[i] = _decoded(data, infos[i])
            if found[i] is not None:
                _keep(infos[i], data)
    missing = [i for i, starts in enumerate(found) if starts is None]
    if missing:
        first = display(infos[missing[0]].url)
        warn_user(
            f"{len(missing):,} of {len(infos):,} shards have no index in their store, as {first}: each is"
            " fetched before the first batch; make them by `shardkeep index`"
        )
        scanned = concurrently((_scanned, views[i], infos[i]) for i in missing)
        for i, starts in zip(missing, scanned, strict=True):
            found[i] = starts[0]
    return found  # type: ignore[return-value]


def stored_starts(info: ObjectInfo) -> Starts | None:
    """Return the offsets of a shard from an index in the cache or in the store; None if there is none."""
    starts = _kept(info)
    if starts is None:
        with contextlib.suppress(NotFoundError):
            data = read(info.url + _SUFFIX)
            starts = _decoded(data, info)
            if starts is not None:
                _keep(info, data)
    return starts


def build_remote(
    url: str, *, verify: bool, tick: Tick
) -> tuple[Starts, tuple[ObjectInfo, bytes], ShardkeepError | None]:
    """Scan a shard, and store its index next to it; in the cache if the store refuses it.

    Parameters
    ----------
    url : str
    verify : bool
        Check the CRC of every payload.
    tick : callable
        Called with numbers of bytes, whose sum is the size of the shard.

    Returns
    -------
    starts : ndarray of uint64
    stored : (ObjectInfo, bytes)
        The shard that was scanned, and the content of its index file.
    error : ShardkeepError or None
        The reason why the index is only in the cache.
    """
    info = stat(url)
    view = View(url_parent(url))
    try:
        starts, data = _scanned(view, info, verify=verify, tick=tick)
    finally:
        view.close()
    if index_mode(automatic=False) == "beside":
        try:
            upload_file(data, url + _SUFFIX, replace=True)
        except ShardkeepError as error:
            return starts, (info, data), error
    return starts, (info, data), None


def fetch_checked(view: View, info: ObjectInfo, tick: Tick) -> str:
    """Fetch a shard into a view, and compare its content with the index that was used for it.

    Raises
    ------
    RemoteError
        The index is of another content.
    """
    path = view.fetch(info, tick)
    with contextlib.suppress(FileNotFoundError), open(object_path(info) + _SUFFIX, "rb") as file:
        then = decode(file.read(), shard_bytes=info.size_bytes)
        if then is not None and _samples(path, info.size_bytes) != then[1].samples:
            os.unlink(file.name)
            shown = display(info.url)
            raise RemoteError(
                f"{shown}: the index next to it is of another content: copy the .skidx file of the shard",
                path=shown,
            )
    return path


def _samples(path: str, size_bytes: int) -> tuple[int, ...]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return sample_blocks(fd, size_bytes, 0)[0].samples
    finally:
        os.close(fd)


def _decoded(data: bytes | memoryview, info: ObjectInfo) -> Starts | None:
    decoded = decode(bytes(data), shard_bytes=info.size_bytes)
    if decoded is None or decoded[1].size_bytes != info.size_bytes:
        return None
    return decoded[0]


def _kept(info: ObjectInfo) -> Starts | None:
    try:
        with open(object_path(info) + _SUFFIX, "rb") as file:
            return _decoded(file.read(), info)
    except FileNotFoundError:
        return None


def _keep(info: ObjectInfo, data: bytes | memoryview) -> None:
    path = object_path(info) + _SUFFIX
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.{secrets.token_hex(4)}.part"
    with open(temporary, "wb") as file:
        file.write(data)
    os.rename(temporary, path)


def _scanned(
    view: View, info: ObjectInfo, *, verify: bool = False, tick: Tick = lambda _: None
) -> tuple[Starts, bytes]:
    """Return the offsets and the index of a shard, which is stored in the cache."""
    path = view.fetch(info, lambda _: tick(0))
    starts = frame_starts([path], verify=verify, threads=1)[0]
    tick(info.size_bytes)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = encode(starts, sample_blocks(fd, info.size_bytes, 0)[0])
    finally:
        os.close(fd)
    if index_mode(automatic=False) != "off":
        _keep(info, data)
    view.drop(info.url)
    return starts, data
