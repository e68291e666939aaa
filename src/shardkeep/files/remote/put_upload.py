"""Uploads to Google Cloud Storage and Azure, whose clients create an object at the end of one call.

Both services check the condition of a creation when the object appears. Parts of an upload that has not ended
are not visible, and the services remove them after a week.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from shardkeep.errors import PlanError
from shardkeep.files.kinds.urls import display
from shardkeep.files.remote import requests
from shardkeep.files.remote.base_upload import TOKEN, TokenUpload, not_exclusive

__all__ = ["AzureUpload", "GoogleUpload"]

_BLOCKS_TOGETHER = 4


class _PutUpload(TokenUpload):
    """An upload by one coroutine of the back end."""

    def _create(self) -> None:
        self._call("write", self._put, size_bytes=self._size_bytes)

    async def _put(self) -> None:
        raise NotImplementedError

    def _metadata(self) -> Mapping[str, str]:
        requests.drop_listings()
        return requests.call(self.url, "find", "info").get("metadata") or {}


class GoogleUpload(_PutUpload):
    """Upload to Google Cloud Storage, which is compared with the MD5 of the object."""

    def __init__(self, url: str, *, replace: bool) -> None:
        super().__init__(url, replace=replace)
        is_zonal = getattr(self._system, "_is_zonal_bucket", None)
        if is_zonal is not None and self._call("write", lambda: is_zonal(self._path.partition("/")[0])):
            shown = display(url)
            raise PlanError(
                f"{shown}: objects of a zonal bucket are visible while they are written, and the back end has"
                " no exclusive creation there, so Shardkeep only reads them; write to another bucket",
                path=shown,
            )

    def _check_exclusive(self) -> None:
        # Before 2024.12 gcsfs ignores the argument.
        if "mode" not in inspect.signature(self._system._put_file).parameters:
            raise not_exclusive(self.url, "needs a newer gcsfs for it")

    async def _put(self) -> None:
        mode = "overwrite" if self.replace else "create"
        metadata = {TOKEN: self._token}
        await self._system._put_file(
            self._source, self._path, mode=mode, metadata=metadata, consistency="md5"
        )


class AzureUpload(_PutUpload):
    """Upload to Azure, which compares the MD5 of each block."""

    async def _put(self) -> None:
        container, name, _ = self._system.split_path(self._path)
        # adlfs has no argument for metadata; its own mark is that of `put_file`.
        metadata = {"is_directory": "false", TOKEN: self._token}
        async with self._system.service_client.get_blob_client(container, name) as client:
            with open(self._source, "rb") as file:
                await client.upload_blob(
                    file,
                    overwrite=self.replace,
                    metadata=metadata,
                    max_concurrency=_BLOCKS_TOGETHER,
                    validate_content=True,
                )
