"""WebDataset tar files, whose members with the same key form one sample."""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from shardkeep.errors import CorruptDataError, FormatError, SchemaError, ShardkeepError, TruncatedFileError
from shardkeep.jobs.pack_sources.images import image_features
from shardkeep.jobs.pack_sources.source import Item, PackSource

__all__ = ["WebDataset"]

_IMAGES = ("png", "jpg", "jpeg", "webp")
_BLOCK_BYTES = 512


class WebDataset(PackSource):
    """Tar files whose members ``KEY.EXTENSION`` are grouped by their key, in the order of the archive.

    Parameters
    ----------
    paths : sequence of str
        Tar files, compressed (gzip, bzip2, xz) or not.

    Notes
    -----
    The key ends at the first dot of the file name and becomes the feature "key". ``.png``,
    ``.jpg``, ``.jpeg`` and ``.webp`` become "image_raw" with "height", "width" and "depth"; ``.cls`` becomes
    the int64 "label". Every other extension, such as ``.json``, becomes a bytes feature of that name.
    """

    kind = "webdataset"

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(paths)
        self.total_bytes = sum(os.path.getsize(path) for path in paths)
        self.features = {"key": "bytes"}

    def __iter__(self) -> Iterator[Item]:
        for path in self.paths:
            try:
                with open(path, "rb") as raw, tarfile.open(fileobj=raw) as tar:
                    begin = self.done_bytes
                    for sample in _samples(path, tar):
                        self.done_bytes = begin + raw.tell()
                        yield self._item(path, *sample)
                    _check_end(path, tar)
                    self.done_bytes = begin + os.path.getsize(path)
            except (tarfile.TarError, EOFError, zlib.error) as error:
                reason = " ".join(str(error).split())
                raise CorruptDataError(
                    f"{path}: a damaged or truncated tar archive ({reason})", path=path
                ) from None

    def _item(self, path: str, key: str, members: dict[str, bytes]) -> Item:
        features: dict[str, Any] = {"key": os.fsencode(key)}
        where = f"{path}: {key}"
        try:
            for extension, data in members.items():
                if extension in _IMAGES:
                    if "image_raw" in features:
                        raise SchemaError("two images; rename one, for example to KEY.left.png")
                    features |= image_features(data)
                elif extension == "cls":
                    features["label"] = _label(data)
                elif extension in ("key", "image_raw", "label", "height", "width", "depth"):
                    raise SchemaError(f"the member .{extension} has the name of another feature; rename it")
                else:
                    features[extension] = data
        except ShardkeepError as error:
            return type(error)(f"{where}: {error}", path=path)
        for name, value in features.items():
            self.features[name] = "int64" if isinstance(value, int) else "bytes"
        return features


def _label(data: bytes) -> int:
    try:
        return int(data)
    except ValueError:
        raise SchemaError(f"the label in .cls must be an integer, not {data[:40]!r}") from None


def _samples(path: str, tar: tarfile.TarFile) -> Iterator[tuple[str, dict[str, bytes]]]:
    key = ""
    members: dict[str, bytes] = {}
    done: set[str] = set()
    for member in tar:
        if not member.isfile():
            if member.isdir():
                continue
            raise FormatError(
                f"{path}: {member.name} is a link or a device; pack regular files only", path=path
            )
        folder, name = os.path.split(member.name)
        stem, dot, extension = name.partition(".")
        if not stem or not dot:
            raise FormatError(f"{path}: {member.name}: the name of a member must be KEY.EXTENSION", path=path)
        mine = os.path.join(folder, stem)
        if mine != key:
            if members:
                yield key, members
                done.add(key)
            if mine in done:
                raise FormatError(
                    f"{path}: the members of {mine} are not consecutive; sort the archive by name",
                    path=path,
                )
            key, members = mine, {}
        if extension in members:
            raise FormatError(f"{path}: {member.name} is in the archive twice", path=path)
        opened = tar.extractfile(member)
        data = opened.read() if opened is not None else b""
        if len(data) != member.size:
            raise TruncatedFileError(f"{path}: the archive ends inside {member.name}", path=path)
        members[extension.lower()] = data
    if members:
        yield key, members


def _check_end(path: str, tar: tarfile.TarFile) -> None:
    """Check the end of the archive; Python takes a truncation between two members for the end."""
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    rest = tar.fileobj.read(_BLOCK_BYTES)
    if len(rest) < _BLOCK_BYTES or rest.strip(b"\0"):
        # `offset` is after the first of the two blocks of zeros, unless there was none.
        tar.fileobj.seek(max(tar.offset - _BLOCK_BYTES, 0))
        rest = tar.fileobj.read(_BLOCK_BYTES)
        if len(rest) < _BLOCK_BYTES or rest.strip(b"\0"):
            raise TruncatedFileError(
                f"{path}: the archive has no end; it was truncated, or two archives were joined", path=path
            )
    while rest := tar.fileobj.read(1 << 20):
        if rest.strip(b"\0"):
            raise FormatError(
                f"{path}: data after the end of the archive; pack archives that were joined separately",
                path=path,
            )
