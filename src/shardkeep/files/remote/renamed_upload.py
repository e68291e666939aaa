"""Uploads to stores that rename: SFTP, HDFS and WebDAV."""

from __future__ import annotations

from typing import Any

from shardkeep.errors import PlanError, RemoteError, ShardkeepError
from shardkeep.files import leftovers
from shardkeep.files.kinds.urls import display, join_url, url_name, url_parent
from shardkeep.files.remote import requests, store
from shardkeep.files.remote.base_upload import Upload, remove

__all__ = ["HdfsUpload", "SftpUpload", "WebdavUpload"]


class _RenamedUpload(Upload):
    """An upload under a temporary name in the same folder."""

    def __init__(self, url: str, *, replace: bool) -> None:
        super().__init__(url, replace=replace)
        self._temporary_url = join_url(url_parent(url), leftovers.temporary_name(url_name(url)))
        self._temporary = requests.file_system(self._temporary_url)[1]

    def _send(self) -> None:
        folder = url_parent(self.url)
        requests.call(folder, "make the folder", "makedirs", exist_ok=True)
        for info in store.list_folder(folder):
            if leftovers.is_of_ended_process(url_name(info.url)):
                remove(info.url)
        self._call("write", self._put, size_bytes=self._size_bytes)
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
            if store.find(self._temporary_url) is not None:
                if not self.replace and store.find(self.url) is not None:
                    raise self._taken() from None
                raise
            if store.find(self.url) is None:
                raise

    def _rename(self, old: str, new: str) -> Any:
        raise NotImplementedError

    def _abort(self) -> None:
        if self._source:
            remove(self._temporary_url)

    def _is_ours(self) -> bool:
        return store.find(self._temporary_url) is None


class SftpUpload(_RenamedUpload):
    """Upload by SFTP."""

    def _rename(self, old: str, new: str) -> Any:
        if not self._system.async_impl:  # fsspec's own, with paramiko
            client = self._system.ftp
            return (client.posix_rename if self.replace else client.rename)(old, new)
        return self._rename_by_asyncssh(old, new)

    async def _rename_by_asyncssh(self, old: str, new: str) -> None:
        async with self._system._pool.get() as channel:
            # SFTP's own rename refuses an existing name; OpenSSH does so by link(2).
            await (channel.posix_rename if self.replace else channel.rename)(old, new)


class HdfsUpload(_RenamedUpload):
    """Upload to HDFS."""

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


class WebdavUpload(_RenamedUpload):
    """Upload by WebDAV, whose MOVE can refuse an existing name."""

    def _rename(self, old: str, new: str) -> Any:
        return self._system.client.move(old, new, overwrite=self.replace)
