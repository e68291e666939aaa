"""Remote shards of a loader: their versions, their indexes, and their local copies in each process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from shardkeep.errors import PlanError
from shardkeep.files.kinds.urls import is_url, path_or_url
from shardkeep.files.remote.cache import View, limit_bytes, object_path
from shardkeep.files.remote.copies import common_parent
from shardkeep.files.remote.store import ObjectInfo, stat_many
from shardkeep.tfrecord.index.remote import fetch_checked, remote_starts
from shardkeep.tfrecord.index.scan import Starts

__all__ = ["RemoteShards"]

# Before the first batch; a link takes tens of microseconds.
_MOST_LINKED = 1024


class RemoteShards:
    """Shards of a loader of which some are remote objects.

    Parameters
    ----------
    infos : sequence of ObjectInfo or str
        Each shard: the object, or the path of a local file.
    folders : sequence of str
        The remote folder of the view of each shard; anything for a local one.
    """

    def __init__(self, infos: Sequence[ObjectInfo | str], folders: Sequence[str]) -> None:
        self.infos, self.folders = tuple(infos), tuple(folders)
        self._views: dict[str, View] = {}
        self._pid = 0

    @classmethod
    def find(cls, paths: Sequence[str]) -> RemoteShards:
        """Return the shards of some URLs, as their stores have them now."""
        if not all(map(is_url, paths)):
            raise PlanError(
                "a data set is either remote or local: pass URLs or paths, or mix two loaders with Loader.mix"
            )
        infos = stat_many([path_or_url(path) for path in paths])
        return cls(infos, [common_parent(list(paths))] * len(infos))

    @classmethod
    def joined(cls, parts: Sequence[tuple[RemoteShards | None, Sequence[str]]]) -> RemoteShards | None:
        """Return the shards of several data sets, each with its paths; None if all are local."""
        if all(part is None for part, _ in parts):
            return None
        infos: list[ObjectInfo | str] = []
        folders: list[str] = []
        for part, paths in parts:
            infos += paths if part is None else part.infos
            folders += [""] * len(paths) if part is None else part.folders
        return cls(infos, folders)

    def starts(self) -> list[Starts]:
        """Return the offsets of the frames of each shard."""
        infos = [info for info in self.infos if not isinstance(info, str)]
        return remote_starts([self.view(number) for number in range(len(infos))], infos)

    def names(self) -> list[str]:
        """Return the names of the shards below their common folder."""
        return [os.path.relpath(path, self.view(i).folder) for i, path in enumerate(self.paths)]

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the shards in this process; those of remote ones exist after `fetch`."""
        return tuple(
            info if isinstance(info, str) else self.view(number).path(info.url)
            for number, info in enumerate(self.infos)
        )

    def view(self, number: int) -> View:
        """Return the view of a shard, which belongs to this process."""
        if self._pid != os.getpid():
            self._views, self._pid = {}, os.getpid()
        folder = self.folders[number]
        view = self._views.get(folder)
        if view is None:
            view = self._views.setdefault(folder, View(folder))
        return view

    def fetch(self, number: int, tick: Any = lambda _: None) -> str:
        """Return the path of a shard, after it was fetched."""
        info = self.infos[number]
        return info if isinstance(info, str) else fetch_checked(self.view(number), info, tick)

    def link_cached(self) -> bool:
        """Put all shards in their places if they are in the cache together; return False if not."""
        infos = [info for info in self.infos if not isinstance(info, str)]
        if (
            len(infos) > _MOST_LINKED
            or sum(info.size_bytes for info in infos) > limit_bytes()
            or not all(os.path.exists(object_path(info)) for info in infos)
        ):
            return False
        for number in range(len(self.infos)):
            self.fetch(number)
        return True

    def size_bytes(self, number: int) -> int:
        """Return the size of a remote shard; 0 of a local one."""
        info = self.infos[number]
        return 0 if isinstance(info, str) else info.size_bytes

    def drop(self, number: int) -> None:
        """Let the cache remove a shard."""
        info = self.infos[number]
        if not isinstance(info, str):
            self.view(number).drop(info.url)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_views": {}, "_pid": 0}
