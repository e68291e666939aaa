"""Uploads of whole files: an object appears complete and checked, or not at all.

The back ends of fsspec differ in what they do at once, so there are three ways:

- **S3**: one conditional PUT, or a multipart upload whose parts are sent first and which is completed at the
  end. An upload that fails is aborted.
- **Stores with renames** (SFTP, HDFS, WebDAV): the file is sent under a temporary name in the same folder,
  and renamed at the end. The temporary files of processes of this host that have ended are removed.
- **Google Cloud Storage, Azure** and the memory of fsspec: one call of the back end, which creates the object
  at its end.

**Exclusive creation** is that of the store: ``If-None-Match: *`` and its relatives, or a rename that does not
replace. Not every S3 store honours the condition, so each bucket is asked once per process, with an object of
its own that is removed again. Where the answer to a creation is lost, the object is recognised by a token in
its metadata, and a rename by the absence of the temporary name.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
import tempfile
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from shardkeep.errors import ExistsError, NotFoundError, PlanError, RemoteError, ShardkeepError
from shardkeep.files import leftovers
from shardkeep.files.kinds.urls import display, join_url, split_url, url_name, url_parent
from shardkeep.files.remote import requests, store
from shardkeep.files.threads.tasks import Tasks

__all__ = ["Upload", "remove", "upload_file", "upload_to"]

_TOKEN = "shardkeep-upload"
# S3 refuses parts below 5 MiB, except the last, and more than 10,000 of them.
_PART_BYTES = 16 << 20
_MOST_PARTS = 9_000
_PARTS_TOGETHER = 4
# A slow link must not look like silence.
_SLOWEST_BYTES_PER_S = 1 << 20


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
    protocols = requests.repeated(url, "write", lambda _: requests.file_system(url)[0].protocol)
    names = {protocols} if isinstance(protocols, str) else set(protocols)
    way = next((kind for name, kind in _WAYS.items() if name in names), None)
    if way is None or split_url(url)[2]:
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


def remove(url: str) -> None:
    """Remove an object; a missing one is not an error."""
    with contextlib.suppress(NotFoundError):
        requests.call(url, "remove", "rm_file")


class Upload:
    """The upload of one file; `send` it, then `place` it, or `undo` both."""

    def __init__(self, url: str, *, replace: bool) -> None:
        self.url = url
        self.replace = replace
        self._system, self._path = requests.file_system(url)
        self._source = ""
        self._size_bytes = 0
        self._may_exist = False
        if not replace:
            if self._exists():
                raise self._taken()
            self._check_exclusive()

    def send(self, source: str) -> None:
        """Send the bytes of a local file, where the store can do so before the object appears."""
        self._source, self._size_bytes = source, os.path.getsize(source)
        self._send()

    def place(self) -> None:
        """Make the object appear, and check its size.

        Raises
        ------
        ExistsError
            Another process has created it, and `replace` is false.
        """
        self._may_exist = True
        self._place()
        found = store.stat(self.url).size_bytes
        if found != self._size_bytes:
            raise RemoteError(
                f"{display(self.url)} has {found:,} bytes after the upload of {self._size_bytes:,}: another"
                " process has replaced it, or the store has cut it; write it again",
                path=display(self.url),
            )

    def undo(self) -> None:
        """Remove what was sent; an object that replaced another one stays."""
        self._abort()
        if self._may_exist and not self.replace and self._is_ours():
            remove(self.url)

    # -- of one kind of store ----------------------------------------------------------------------------

    def _check_exclusive(self) -> None:
        """Raise unless the store can create an object that no other process creates."""

    def _send(self) -> None:
        """Send the bytes, without effect on the final name."""

    def _place(self) -> None:
        raise NotImplementedError

    def _abort(self) -> None:
        """Remove what `_send` has sent."""

    def _is_ours(self) -> bool:
        """Return True if the object was certainly created by this upload."""
        return False

    # -- for all ---------------------------------------------------------------------------------------

    def _exists(self) -> bool:
        try:
            store.stat(self.url)
        except NotFoundError:
            return False
        return True

    def _taken(self) -> ExistsError:
        shown = display(self.url)
        return ExistsError(f'{shown} exists: choose another name, or allow exists="replace"', path=shown)

    def _call(self, what: str, make: Callable[[], Any], *, size_bytes: int = 0, repeat: bool = True) -> Any:
        """Return the result of a call, or of a coroutine in the loop of the back end, with a time limit."""

        def attempt(limit_s: float) -> Any:
            limit_s += size_bytes / _SLOWEST_BYTES_PER_S
            if not self._system.async_impl:
                return requests._in_thread(make, limit_s)
            return _in_loop(self._system.loop, make, limit_s)

        return requests.repeated(self.url, what, attempt, repeat=repeat)


def _in_loop(loop: Any, make: Callable[[], Any], limit_s: float) -> Any:
    import asyncio

    # Cancelled after an interrupt or in silence: the object must not appear later.
    future = asyncio.run_coroutine_threadsafe(make(), loop)
    ended: SimpleQueue[Any] = SimpleQueue()
    future.add_done_callback(ended.put)
    try:
        ended.get(timeout=limit_s)
    except Empty:
        future.cancel()
        raise requests._SilentError from None
    except BaseException:
        future.cancel()
        raise
    return future.result()


# -- S3 ------------------------------------------------------------------------------------------------------

_honours: dict[tuple[int, str], bool] = {}
_asking = threading.Lock()


class _S3Upload(Upload):
    def __init__(self, url: str, *, replace: bool) -> None:
        self._token = secrets.token_hex(16)
        self._number: str | None = None
        self._parts: list[dict[str, Any]] = []
        super().__init__(url, replace=replace)

    @property
    def _object(self) -> dict[str, str]:
        bucket, key, _ = self._system.split_path(self._path)
        return {"Bucket": bucket, "Key": key}

    def _s3(self, method: str, *, size_bytes: int = 0, **arguments: Any) -> Any:
        def make() -> Any:
            return self._system._call_s3(method, **{**self._object, **arguments})

        return self._call("write", make, size_bytes=size_bytes)

    def _check_exclusive(self) -> None:
        bucket = f"{split_url(self.url)[0]} {self._system.endpoint_url}"
        key = os.getpid(), bucket
        with _asking:
            if key not in _honours:
                _honours[key] = self._asked()
        if not _honours[key]:
            raise _not_exclusive(self.url, "ignores the condition of a write (If-None-Match)")

    def _asked(self) -> bool:
        probe = join_url(url_parent(self.url), f".shardkeep-probe-{secrets.token_hex(8)}")
        path = requests.file_system(probe)[1]
        bucket, key, _ = self._system.split_path(path)
        name: dict[str, Any] = {"Bucket": bucket, "Key": key}
        try:
            for _ in range(2):
                self._s3("put_object", **name, Body=b"", IfNoneMatch="*")
        except ShardkeepError as error:
            if _is_refusal(error):
                return True
            if isinstance(error, RemoteError) and error.status in (400, 501):  # NotImplemented
                return False
            raise
        finally:
            with contextlib.suppress(ShardkeepError):
                self._s3("delete_object", **name)
        return False

    def _send(self) -> None:
        part_bytes = max(_PART_BYTES, math.ceil(self._size_bytes / _MOST_PARTS))
        if self._size_bytes <= part_bytes:
            return
        made = self._s3("create_multipart_upload", Metadata={_TOKEN: self._token})
        self._number = made["UploadId"]
        starts = range(0, self._size_bytes, part_bytes)
        with Tasks[dict[str, Any]](min(_PARTS_TOGETHER, len(starts)), "shardkeep-upload") as tasks:
            parts = tasks.run(
                (self._send_part, number, start, part_bytes) for number, start in enumerate(starts, 1)
            )
            self._parts = sorted(parts, key=lambda part: int(part["PartNumber"]))

    def _send_part(self, number: int, start: int, part_bytes: int) -> dict[str, Any]:
        with open(self._source, "rb") as file:
            data = os.pread(file.fileno(), part_bytes, start)
        answer = self._s3(
            "upload_part", size_bytes=len(data), UploadId=self._number, PartNumber=number, Body=data
        )
        _check_etag(self.url, answer, data)
        return {"PartNumber": number, "ETag": answer["ETag"]}

    def _place(self) -> None:
        condition: dict[str, Any] = {} if self.replace else {"IfNoneMatch": "*"}
        try:
            if self._number is None:
                with open(self._source, "rb") as file:
                    data = file.read()
                answer = self._s3(
                    "put_object", size_bytes=len(data), Body=data, Metadata={_TOKEN: self._token}, **condition
                )
                _check_etag(self.url, answer, data)
            else:
                self._s3(
                    "complete_multipart_upload",
                    UploadId=self._number,
                    MultipartUpload={"Parts": self._parts},
                    **condition,
                )
        except ShardkeepError as error:
            # The answer to an earlier attempt may be lost: then the object is there, and it is ours.
            if not self._is_ours():
                if _is_refusal(error):
                    raise self._taken() from None
                raise
        self._number = None

    def _abort(self) -> None:
        number, self._number = self._number, None
        if number is not None:
            self._s3("abort_multipart_upload", UploadId=number)

    def _is_ours(self) -> bool:
        try:
            return bool(self._s3("head_object")["Metadata"].get(_TOKEN) == self._token)
        except NotFoundError:
            return False


def _is_refusal(error: ShardkeepError) -> bool:
    return isinstance(error, ExistsError) or (isinstance(error, RemoteError) and error.status in (409, 412))


def _check_etag(url: str, answer: dict[str, Any], data: bytes) -> None:
    """Raise if the store has received other bytes: its ETag is their MD5, unless it encrypts with keys."""
    etag = answer.get("ETag", "").strip('"')
    is_md5 = len(etag) == 32 and answer.get("ServerSideEncryption", "AES256") == "AES256"
    if is_md5 and etag != hashlib.md5(data, usedforsecurity=False).hexdigest():
        raise RemoteError(
            f"cannot write {display(url)}: the store has received other bytes than were sent; try again",
            path=display(url),
        )


# -- stores with renames -----------------------------------------------------------------------------------


class _RenamedUpload(Upload):
    """An upload under a temporary name in the same folder."""

    def __init__(self, url: str, *, replace: bool) -> None:
        self._temporary = ""
        super().__init__(url, replace=replace)
        self._temporary_url = join_url(url_parent(url), leftovers.temporary_name(url_name(url)))
        self._temporary = requests.file_system(self._temporary_url)[1]

    def _send(self) -> None:
        folder = url_parent(self.url)
        requests.call(folder, "make the folder", "makedirs", exist_ok=True)
        for info in store.list_folder(folder):
            if leftovers.is_of_ended_process(url_name(info.url)):
                remove(info.url)
        self._call("write", lambda: self._put(), size_bytes=self._size_bytes)
        found = store.stat(self._temporary_url).size_bytes
        if found != self._size_bytes:
            raise RemoteError(
                f"cannot write {display(self.url)}: the store has {found:,} of {self._size_bytes:,} bytes",
                path=display(self.url),
            )

    def _put(self) -> Any:
        if self._system.async_impl:
            return self._system._put_file(self._source, self._temporary)
        return self._system.put_file(self._source, self._temporary)

    def _place(self) -> None:
        try:
            self._call("write", lambda: self._rename(self._temporary, self._path))
        except ShardkeepError:
            # No other process knows the temporary name: if it is gone, it was renamed.
            if self._is_there(self._temporary_url):
                if not self.replace and self._exists():
                    raise self._taken() from None
                raise
            if not self._exists():
                raise

    def _rename(self, old: str, new: str) -> Any:
        raise NotImplementedError

    def _abort(self) -> None:
        if self._source:
            remove(self._temporary_url)

    def _is_ours(self) -> bool:
        return not self._is_there(self._temporary_url)

    @staticmethod
    def _is_there(url: str) -> bool:
        try:
            store.stat(url)
        except NotFoundError:
            return False
        return True


class _SftpUpload(_RenamedUpload):
    def _rename(self, old: str, new: str) -> Any:
        if not self._system.async_impl:  # fsspec's own, with paramiko
            client = self._system.ftp
            return (client.posix_rename if self.replace else client.rename)(old, new)
        return self._rename_by_asyncssh(old, new)

    async def _rename_by_asyncssh(self, old: str, new: str) -> None:
        async with self._system._pool.get() as channel:
            # SFTP's own rename refuses an existing name; OpenSSH does so by link(2).
            await (channel.posix_rename if self.replace else channel.rename)(old, new)


class _HdfsUpload(_RenamedUpload):
    def _check_exclusive(self) -> None:
        self._rename_method()

    def _rename(self, old: str, new: str) -> Any:
        return self._rename_method()(old, new, self.replace)

    def _rename_method(self) -> Any:
        client = getattr(self._system, "client", None)
        if client is None:
            raise PlanError(
                f"{display(self.url)}: writing to HDFS needs its back end hdfs-native: pip install"
                " hdfs-native",
                path=display(self.url),
            )
        return client.rename


class _WebdavUpload(_RenamedUpload):
    def _rename(self, old: str, new: str) -> Any:
        return self._system.client.move(old, new, overwrite=self.replace)


# -- one call ----------------------------------------------------------------------------------------------


class _PutUpload(Upload):
    """A store whose own call creates the object at its end, under a condition of the store."""

    def _place(self) -> None:
        mode = "overwrite" if self.replace else "create"

        def make() -> Any:
            method = self._system._put_file if self._system.async_impl else self._system.put_file
            return method(self._source, self._path, mode=mode)

        try:
            self._call("write", make, size_bytes=self._size_bytes, repeat=self.replace)
        except ShardkeepError as error:
            if _is_refusal(error):
                raise self._taken() from None
            raise


_in_memory = threading.Lock()


class _MemoryUpload(Upload):
    """fsspec's memory, which is that of one process."""

    def _place(self) -> None:
        with open(self._source, "rb") as file, _in_memory:
            if not self.replace and self._exists():
                raise self._taken()
            self._system.pipe_file(self._path, file.read())
            self._created = True

    def _is_ours(self) -> bool:
        return getattr(self, "_created", False)


_WAYS: dict[str, Callable[..., Upload]] = {
    "s3": _S3Upload,
    "sftp": _SftpUpload,
    "ssh": _SftpUpload,
    "hdfs": _HdfsUpload,
    "viewfs": _HdfsUpload,
    "webdav": _WebdavUpload,
    "gs": _PutUpload,
    "gcs": _PutUpload,
    "abfs": _PutUpload,
    "az": _PutUpload,
    "memory": _MemoryUpload,
}


def _not_exclusive(url: str, why: str) -> PlanError:
    shown = display(url)
    return PlanError(
        f'{shown}: exists="fail" cannot be kept, since this store {why}: pass exists="replace", and a name'
        " that no other process writes",
        path=shown,
    )
