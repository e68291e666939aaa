"""Uploads of whole files: an object appears complete and checked, or not at all.

The back ends of fsspec differ in what they do at once, so there are three ways:

- **S3**: one conditional PUT, or a multipart upload whose parts are sent first and which is completed at the
  end. An upload that fails is aborted.
- **Stores with renames** (SFTP, HDFS, WebDAV): the file is sent under a temporary name in the same folder,
  and renamed at the end. The temporary files of processes of this host that have ended are removed.
- **Google Cloud Storage, Azure** and the memory of fsspec: one call, which creates the object at its end.

**Exclusive creation** is that of the store: ``If-None-Match: *`` and its relatives, or a rename that does not
replace. Not every S3 store honours the condition, so each bucket is asked once per process, with an object of
its own that is removed again. Where the answer to a creation is lost, the object is recognised by a token in
its metadata, and a rename by the absence of the temporary name.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable

from shardkeep.errors import PlanError, ShardkeepError
from shardkeep.files.kinds.urls import display, split_url, url_name
from shardkeep.files.remote import requests, store
from shardkeep.files.remote.base_upload import Upload
from shardkeep.files.remote.put_upload import AzureUpload, GoogleUpload
from shardkeep.files.remote.renamed_upload import HdfsUpload, SftpUpload, WebdavUpload
from shardkeep.files.remote.s3_upload import S3Upload

__all__ = ["upload_file", "upload_to"]


def upload_to(url: str, *, replace: bool) -> Upload:
    """Return an upload to a URL.

    Parameters
    ----------
    url : str
    replace : bool
        True to replace an object of that name.

    Raises
    ------
    ExistsError
        The object exists, and `replace` is false.
    PlanError
        Files of this store cannot be written whole, or cannot be created exclusively, which `replace` needs
        not.
    RemoteError, MissingExtraError
        The store cannot be asked.
    """
    shown = display(url)
    if not url_name(url):
        raise PlanError(f"{shown!r} is a folder: pass the URL of the object to write", path=shown)
    names: set[str] = set()
    if not split_url(url)[2]:  # not in an archive, which may not exist
        protocols = requests.repeated(url, "write", lambda _: requests.file_system(url)[0].protocol)
        names = {protocols} if isinstance(protocols, str) else set(protocols)
    way = next((kind for name, kind in _WAYS.items() if name in names), None)
    if way is None:
        raise PlanError(
            f"{shown}: objects there cannot be written whole or not at all, so Shardkeep only reads them;"
            " write a local file, and copy it",
            path=shown,
        )
    return way(url, replace=replace)


def upload_file(source: str | bytes, url: str, *, replace: bool) -> None:
    """Upload a local file, or some bytes.

    Raises
    ------
    ExistsError, PlanError, RemoteError, MissingExtraError
        As `upload_to` and `Upload.place`.
    """
    if isinstance(source, bytes):
        with tempfile.NamedTemporaryFile(prefix="shardkeep-") as file:
            file.write(source)
            file.flush()
            upload_file(file.name, url, replace=replace)
        return
    upload = upload_to(url, replace=replace)
    try:
        upload.send(source)
        upload.place()
    except BaseException:
        with contextlib.suppress(ShardkeepError):
            upload.undo()
        raise


# -- memory ----------------------------------------------------------------------------------------------

_in_memory = threading.Lock()


class _MemoryUpload(Upload):
    """fsspec's memory, which is that of one process."""

    def _place(self) -> None:
        with open(self._source, "rb") as file, _in_memory:
            if not self.replace and store.find(self.url) is not None:
                raise self._taken()
            self._system.pipe_file(self._path, file.read())
            self._created = True

    def _is_ours(self) -> bool:
        return getattr(self, "_created", False)


_WAYS: dict[str, Callable[..., Upload]] = {
    "s3": S3Upload,
    "sftp": SftpUpload,
    "ssh": SftpUpload,
    "hdfs": HdfsUpload,
    "viewfs": HdfsUpload,
    "webdav": WebdavUpload,
    "gs": GoogleUpload,
    "gcs": GoogleUpload,
    "abfs": AzureUpload,
    "az": AzureUpload,
    "memory": _MemoryUpload,
}
