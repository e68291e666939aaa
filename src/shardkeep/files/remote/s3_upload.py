"""Uploads to S3: one conditional PUT, or a multipart upload."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
from collections.abc import Mapping
from typing import Any

from shardkeep.errors import RemoteError, ShardkeepError
from shardkeep.files.kinds.urls import display, join_url, split_url, url_parent
from shardkeep.files.remote import requests
from shardkeep.files.remote.base_upload import TOKEN, TokenUpload, is_refusal, not_exclusive
from shardkeep.files.threads.tasks import Tasks

__all__ = ["S3Upload"]

# S3 refuses parts below 5 MiB, except the last, and more than 10,000 of them.
_PART_BYTES = 16 << 20
_MOST_PARTS = 9_000
_PARTS_TOGETHER = 4

_honours: dict[tuple[int, str], bool] = {}


class S3Upload(TokenUpload):
    """Upload to S3, also in parts."""

    def __init__(self, url: str, *, replace: bool) -> None:
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
        if key not in _honours:
            _honours[key] = self._asked()
        if not _honours[key]:
            raise not_exclusive(self.url, "ignores the condition of a write (If-None-Match)")

    def _asked(self) -> bool:
        probe = join_url(url_parent(self.url), f".shardkeep-probe-{secrets.token_hex(8)}")
        path = requests.file_system(probe)[1]
        bucket, key, _ = self._system.split_path(path)
        name: dict[str, Any] = {"Bucket": bucket, "Key": key}
        try:
            for _ in range(2):
                self._s3("put_object", **name, Body=b"", IfNoneMatch="*")
        except ShardkeepError as error:
            if is_refusal(error):
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
        made = self._s3("create_multipart_upload", Metadata={TOKEN: self._token})
        self._number = made["UploadId"]
        starts = range(0, self._size_bytes, part_bytes)
        threads = min(_PARTS_TOGETHER, len(starts))
        with Tasks[dict[str, Any]](threads, "shardkeep-upload") as tasks, self._stopping_others():
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
        super()._place()
        self._number = None

    def _create(self) -> None:
        condition: dict[str, Any] = {} if self.replace else {"IfNoneMatch": "*"}
        if self._number is None:
            with open(self._source, "rb") as file:
                data = file.read()
            answer = self._s3(
                "put_object", size_bytes=len(data), Body=data, Metadata={TOKEN: self._token}, **condition
            )
            _check_etag(self.url, answer, data)
        else:
            self._s3(
                "complete_multipart_upload",
                UploadId=self._number,
                MultipartUpload={"Parts": self._parts},
                **condition,
            )

    def _abort(self) -> None:
        number, self._number = self._number, None
        if number is not None:
            self._s3("abort_multipart_upload", UploadId=number)

    def _metadata(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self._s3("head_object")["Metadata"]
        return found


def _check_etag(url: str, answer: dict[str, Any], data: bytes) -> None:
    """Raise if the store has received other bytes: its ETag is their MD5, unless it encrypts with keys."""
    etag = answer.get("ETag", "").strip('"')
    is_md5 = len(etag) == 32 and answer.get("ServerSideEncryption", "AES256") == "AES256"
    if is_md5 and etag != hashlib.md5(data, usedforsecurity=False).hexdigest():
        raise RemoteError(
            f"cannot write {display(url)}: the store has received other bytes than were sent; try again",
            path=display(url),
        )
