"""Publication of a file in a remote store: written to a local spool, uploaded at the end."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from shardkeep.errors import ShardkeepError
from shardkeep.files.kinds.urls import url_name, url_parent
from shardkeep.files.pending import Pending
from shardkeep.files.remote.upload import upload_to

__all__ = ["RemotePending", "spool_folder"]


def spool_folder() -> str:
    """Return the folder of files before their upload, which is created for this user only.

    It is ``$SHARDKEEP_CACHE_DIR/spool``, by default ``$XDG_CACHE_HOME/shardkeep/spool``.
    """
    root = os.environ.get("SHARDKEEP_CACHE_DIR")
    if not root:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        root = os.path.join(base, "shardkeep")
    folder = os.path.join(os.path.abspath(root), "spool")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


class RemotePending:
    """A file in the spool that becomes an object, with the steps of `shardkeep.files.pending.Pending`."""

    def __init__(self, url: str, *, replace: bool, by_name: bool = False, within: list[Any]) -> None:
        self.path = url
        self.folder = url_parent(url)
        self._upload = upload_to(url, replace=replace)
        local: list[Pending] = []
        try:
            Pending(
                os.path.join(spool_folder(), url_name(url)),
                replace=True,
                durable=False,
                by_name=by_name,
                within=local,
            )
        finally:
            if local:
                self._local = local[0]
                within.append(self)

    @property
    def file(self) -> Any:
        """The file in the spool."""
        return self._local.file

    @property
    def temporary(self) -> str:
        """The name of the file in the spool."""
        return self._local.temporary

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
