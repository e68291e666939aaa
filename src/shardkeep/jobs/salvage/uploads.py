"""Outputs of a repair in a remote store: written to the spool, and uploaded at the end."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from shardkeep._paths_in_messages import forget_folder, show_as
from shardkeep.files.file_set import FileSet
from shardkeep.files.kinds.urls import display, join_url, url_name
from shardkeep.files.publish import Exists
from shardkeep.files.remote.pending import spool_folder

__all__ = ["uploaded"]


@contextlib.contextmanager
def uploaded(url: str, exists: Exists) -> Iterator[str]:
    """Yield the path of a file or folder that the body may write, which is uploaded at the end.

    Until then messages have the URL in place of the path. The first commits of a run appear last, so that a
    merge refuses what a kill leaves.

    Parameters
    ----------
    url : str
        The new object, or the new folder.
    exists : {"fail", "replace"}

    Raises
    ------
    ExistsError, RemoteError, DurabilityError
        As in `shardkeep.files.publish`.
    """
    with tempfile.TemporaryDirectory(prefix="repair-", dir=spool_folder()) as folder:
        output = os.path.join(folder, url_name(url) or "output")
        show_as(output, display(url))
        try:
            yield output
            written = [os.path.join(top, one) for top, _, names in os.walk(output) for one in names]
            written.sort(key=lambda path: (not path.endswith(".h5"), path), reverse=True)
            with FileSet(exists=exists) as files:
                for path in written:
                    files.adopt(join_url(url, os.path.relpath(path, output)), path)
                if os.path.isfile(output):
                    files.adopt(url, output)
        finally:
            forget_folder(output)
