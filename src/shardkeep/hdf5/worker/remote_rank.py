"""Folder of one rank in a remote store, and its local mirror, in which the worker writes.

The mirror is under the lock of the rank, which excludes other processes of this host. For those of other
hosts the store has ``owner.json``: each opening replaces it, and a process that no longer finds its own token
there does not commit. A process that is between this check and its upload at the moment of another opening is
not excluded; a segment is never replaced, so that its commit is refused, or found as a contradiction.

Every change is made in the mirror first and then in the store, in an order in which each state is one that a
worker could have left (`shardkeep.hdf5.segments.run_folder`).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets

from shardkeep._paths_in_messages import show_as
from shardkeep.errors import CorruptDataError, ExistsError, LockError, NotFoundError
from shardkeep.files.kinds.urls import display, is_url, join_url, path_or_url, url_name
from shardkeep.files.remote.base_upload import remove
from shardkeep.files.remote.pending import local_folder
from shardkeep.files.remote.store import download, list_folder, read
from shardkeep.files.remote.uploads import upload_file
from shardkeep.hdf5.segments.run_folder import rank_folder, segment_name, segment_path
from shardkeep.hdf5.segments.series_end import END_NAME

__all__ = ["RemoteRank", "local_run"]

_OWNER = "owner.json"


def local_run(run_dir: str | os.PathLike[str]) -> str:
    """Return the absolute path of a run folder, or that of the mirror for a URL."""
    name = path_or_url(run_dir)
    if not is_url(name):
        return os.path.abspath(name)
    return local_folder("runs", name.rstrip("/"))


class RemoteRank:
    """Folder of one rank in a store.

    Parameters
    ----------
    run_url : str
        URL of the run folder.
    rank : int
    """

    def __init__(self, run_url: str, rank: int) -> None:
        self.folder = rank_folder(local_run(run_url), rank)
        self.url = join_url(run_url, os.path.basename(self.folder))
        self._token = secrets.token_hex(16)
        show_as(self.folder, self.url)

    def claim(self) -> None:
        """Become the owner: commits of a process that opened the rank before are refused from now on."""
        content = json.dumps({"format": 1, "token": self._token}).encode()
        upload_file(content, join_url(self.url, _OWNER), replace=True)

    def pull(self) -> None:
        """Make the mirror equal to the store."""
        infos = {url_name(info.url): info for info in list_folder(self.url)}
        there = {name: info for name, info in infos.items() if _is_kept(name)}
        for one in filter(None, map(segment_name, list(there))):
            if one.cut_from is not None and segment_path("", one.sequence, one.step) in there:
                remove(there.pop(one.path).url)  # the last step of a rollback that was interrupted
        for name in os.listdir(self.folder):
            if _is_kept(name) and name not in there:
                os.unlink(os.path.join(self.folder, name))
        for name, info in there.items():
            path = os.path.join(self.folder, name)
            if not os.path.exists(path) or os.path.getsize(path) != info.size_bytes or name == END_NAME:
                download(info, f"{path}.part")
                os.replace(f"{path}.part", path)

    def push(self) -> None:
        """Make the store equal to the mirror.

        Raises
        ------
        LockError
            Another process has opened the rank since; nothing was changed.
        CorruptDataError
            Another process has written the same segment.
        RemoteError
        """
        self._check_owner()
        here = {name for name in os.listdir(self.folder) if _is_kept(name)}
        there = {name for info in list_folder(self.url) if _is_kept(name := url_name(info.url))}
        new, gone = sorted(here - there), sorted(there - here, reverse=True)
        replaced = {one.sequence: one.step for one in filter(None, map(segment_name, gone))}
        # Until the segment that it was cut from is removed, the result has a longer name.
        cut = {
            one.path: segment_path("", one.sequence, one.step, replaced[one.sequence])
            for one in filter(None, map(segment_name, new))
            if one.sequence in replaced
        }
        for name, longer in cut.items():
            self._send(name, longer)
        for name in new if not cut else []:
            self._send(name, name)
        for name in gone:
            remove(join_url(self.url, name))
        for name, longer in cut.items():
            self._send(name, name)
            remove(join_url(self.url, longer))
        if cut and END_NAME in new:
            self._send(END_NAME, END_NAME)

    def forget(self) -> None:
        """Remove the files of the mirror; the caller holds the lock."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.folder):
                if _is_kept(name):
                    os.unlink(os.path.join(self.folder, name))

    def _send(self, name: str, final: str) -> None:
        url = join_url(self.url, final)
        try:
            upload_file(os.path.join(self.folder, name), url, replace=name == END_NAME)
        except ExistsError:
            message = f"{display(url)} was written by another process of this rank: end one of them, and open"
            raise CorruptDataError(f"{message} the rank again", path=display(url)) from None

    def _check_owner(self) -> None:
        try:
            token = json.loads(bytes(read(join_url(self.url, _OWNER)))).get("token")
        except (NotFoundError, ValueError, AttributeError):
            token = None
        if token != self._token:
            raise LockError(
                f"{display(self.url)} was opened by another process since: end one of them; this one does not"
                " change it any more",
                path=display(self.url),
            )


def _is_kept(name: str) -> bool:
    return name == END_NAME or segment_name(name) is not None
