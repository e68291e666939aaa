"""Publication of a file in a remote store: written to a local spool, uploaded at the end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from shardkeep.errors import ShardkeepError
from shardkeep.files.durable import durably
from shardkeep.files.kinds.urls import is_url, url_name, url_parent
from shardkeep.files.pending import Pending
from shardkeep.files.remote.cache import user_folder
from shardkeep.files.remote.store import stat_many
from shardkeep.files.remote.uploads import upload_to

__all__ = ["RemotePending", "cache_root", "local_folder", "sizes_bytes", "spool_folder"]


def sizes_bytes(paths: Sequence[str]) -> list[int]:
    """Return the sizes of files that were published, local or in one store."""
    if any(map(is_url, paths)):
        return [info.size_bytes for info in stat_many(paths)]
    return [os.path.getsize(path) for path in paths]


def cache_root() -> str:
    """Return ``$SHARDKEEP_CACHE_DIR``, by default ``$XDG_CACHE_HOME/shardkeep``."""
    return os.path.abspath(os.environ.get("SHARDKEEP_CACHE_DIR") or user_folder())


def local_folder(kind: str, url: str) -> str:
    """Return the folder on this host for the files of a URL, which need not exist."""
    key = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:40]
    return os.path.join(cache_root(), kind, key)


def spool_folder() -> str:
    """Return the folder of files before their upload, which is created for this user only."""
    folder = os.path.join(cache_root(), "spool")
    with durably("create the cache", folder):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


class RemotePending:
    """A file in the spool that becomes an object, with the steps of `shardkeep.files.pending.Pending`."""

    def __init__(
        self,
        url: str,
        *,
        replace: bool,
        within: list[Any],
        local: Callable[..., Any] = Pending,
        **options: Any,
    ) -> None:
        self.path = url
        self.folder = url_parent(url)
        self._replace = replace
        self._upload = upload_to(url, replace=replace)
        made: list[Any] = []
        try:
            place = os.path.join(spool_folder(), url_name(url))
            local(place, replace=True, durable=False, within=made, **options)
        finally:
            if made:
                self._local = made[0]
                within.append(self)

    @property
    def file(self) -> Any:
        """The file in the spool."""
        return self._local.file

    @property
    def temporary(self) -> str:
        """The name of the file in the spool."""
        return str(self._local.temporary)

    def rename(self, path: str) -> None:
        """Replace the URL by another one in the same folder."""
        self._upload = upload_to(path, replace=self._replace)
        self.path = path

    def take(self, written: str) -> None:
        """Move a file of the same file system, or of another one, to the spool."""
        try:
            self._local.take(written)
        except OSError:
            copied = f"{self.file.name}.copy"
            shutil.copyfile(written, copied)
            self._local.take(copied)
            os.unlink(written)

    def seal(self) -> None:
        """Send the bytes, as far as the store can do that before the object appears."""
        self._local.seal()
        self._upload.send(self.file.name)

    def place(self) -> None:
        """Make the object appear."""
        self._upload.place()

    def sync_folder(self) -> None:
        """Do nothing: the store has answered."""

    def forget_old(self) -> None:
        """Remove the file in the spool."""
        self._local.undo()

    def undo(self) -> None:
        """Remove the file in the spool, and what was sent."""
        self._local.undo()
        with contextlib.suppress(ShardkeepError):  # the error that led here is the one to report
            self._upload.undo()

    def close(self) -> None:
        """Close the descriptors."""
        self._local.close()
