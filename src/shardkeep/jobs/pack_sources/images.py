"""Folders of images: PNG, JPEG and WebP files, identified by their bytes and stored without decoding."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from typing import Any, NamedTuple

from shardkeep import _core
from shardkeep.errors import (
    CorruptDataError,
    FormatError,
    NotFoundError,
    SchemaError,
    ShardkeepError,
    TruncatedFileError,
)
from shardkeep.files.durable import reading_from
from shardkeep.files.kinds.kind import HEAD_BYTES, identify_bytes
from shardkeep.files.kinds.urls import local_path
from shardkeep.files.threads.groups import divide
from shardkeep.files.threads.work import Tick, Work
from shardkeep.jobs.pack_sources.source import Item, PackSource

__all__ = ["ImageFacts", "ImageFolder", "image_facts", "image_features", "read_labels"]

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_DEPTHS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_IMAGE_SUFFIXES = frozenset(
    [".avif", ".bmp", ".gif", ".heic", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"]
)
_JPEG = b"\xff\xd8\xff"
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Files that one thread reads together; the number of threads, and of groups at a time.
_GROUP_FILES, _GROUP_BYTES = 32, 8 << 20
_THREADS, _GROUPS = 4, 8
# With an executor; the groups that are read ahead may need 256 MiB.
_MORE_GROUPS = 32


class ImageFacts(NamedTuple):
    """Format and shape of an image, from its header; `depth` is the number of channels."""

    format: str
    height: int
    width: int
    depth: int


def image_facts(data: bytes) -> ImageFacts:
    """Return format and shape of a whole PNG, JPEG or WebP file, without decoding it.

    In a PNG file the checksum of every chunk must match. A JPEG file has no checksums, but it must have a
    frame, a scan, and the marker of its end. A WebP file must have the length in its header, and not be an
    animation.

    Raises
    ------
    FormatError
        The data are of another format.
    CorruptDataError
        A checksum does not match, or the structure is damaged.
    TruncatedFileError
        The end is missing, as after an interrupted download.

    Examples
    --------
    >>> image_facts(b"GIF89a")
    Traceback (most recent call last):
    shardkeep.errors.FormatError: a GIF image, not PNG, JPEG or WebP
    """
    if data.startswith(_PNG):
        return _png_facts(data)
    if data.startswith(_JPEG):
        return _jpeg_facts(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp_facts(data)
    raise FormatError(f"{identify_bytes(data[:HEAD_BYTES]).described}, not PNG, JPEG or WebP")


def image_features(data: bytes) -> dict[str, Any]:
    """Return the features of an image, named as in TensorFlow's tutorial: image_raw, height, width, depth."""
    facts = image_facts(data)
    return {"image_raw": data, "height": facts.height, "width": facts.width, "depth": facts.depth}


def _png_facts(data: bytes) -> ImageFacts:
    at, facts, pixels = len(_PNG), None, False
    while True:
        length = int.from_bytes(data[at : at + 4], "big")
        name, end = data[at + 4 : at + 8], at + 12 + length
        if end > len(data):
            raise TruncatedFileError("a PNG image that ends before its last chunk", offset_bytes=at)
        if zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            raise CorruptDataError(f"a PNG image with a damaged chunk at byte {at}", offset_bytes=at)
        if name == b"IHDR" and length == 13:
            width, height = (int.from_bytes(data[at + k : at + k + 4], "big") for k in (8, 12))
            depth = _PNG_DEPTHS.get(data[at + 17])
            if depth is None or not width or not height:
                raise CorruptDataError("a PNG image with an impossible header", offset_bytes=at)
            facts = ImageFacts("png", height, width, depth)
        pixels |= name == b"IDAT"
        if facts is None or (name == b"IEND" and not pixels):
            raise CorruptDataError("a PNG image without its header or its pixels", offset_bytes=at)
        if name == b"IEND":
            return facts
        at = end


def _jpeg_facts(data: bytes) -> ImageFacts:
    at, facts = 2, None
    while True:
        while data[at : at + 2] == b"\xff\xff":  # padding
            at += 1
        if at + 4 > len(data):
            raise TruncatedFileError("a JPEG image that ends before its pixels", offset_bytes=at)
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at] != 0xFF or length < 2 or marker < 0xC0 or marker == 0xD9:
            raise CorruptDataError(f"a JPEG image that is damaged at byte {at}", offset_bytes=at)
        if marker == 0xDA:
            break
        if marker in _FRAME_MARKERS and at + 10 <= len(data):
            height, width = (int.from_bytes(data[at + k : at + k + 2], "big") for k in (5, 7))
            facts = ImageFacts("jpeg", height, width, data[at + 9])
        at += 2 + length
    if facts is None or not facts.height or not facts.width:
        raise CorruptDataError("a JPEG image without the size of its frame", offset_bytes=at)
    if data.rfind(b"\xff\xd9", at) < 0:
        raise TruncatedFileError("a JPEG image without its end", offset_bytes=len(data))
    return facts


def _webp_facts(data: bytes) -> ImageFacts:
    if len(data) < 8 + int.from_bytes(data[4:8], "little"):
        raise TruncatedFileError("a WebP image that ends before its last chunk", offset_bytes=len(data))
    shape = _core.image_shape(data)
    if shape is None:
        raise FormatError("a WebP image that is an animation, or has a damaged header", offset_bytes=12)
    return ImageFacts("webp", *shape)


# -- folders -------------------------------------------------------------------------------------------


class _File(NamedTuple):
    path: str
    name: str
    label: int | None
    size_bytes: int


class _Group(NamedTuple):
    files: list[_File]

    @property
    def path(self) -> str:
        return self.files[0].path

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class ImageFolder(PackSource):
    """A folder of images whose sub-folders are labels.

    Parameters
    ----------
    path : str
    labels : mapping of str to int, optional
        Number of each label. By default the sub-folders are numbered in the order of their names' code
        points.
    executor : Executor, optional
        Reads and checks the images instead of threads.
    """

    kind = "images"

    def __init__(
        self, path: str, labels: Mapping[str, int] | None = None, executor: Executor | None = None
    ) -> None:
        super().__init__([path])
        self._executor = executor
        folders, loose = _entries(path, hidden=True)
        self.left_out = [one.name for one in loose if not _is_image(one)]
        loose = [one for one in loose if one.name not in self.left_out]
        if folders and loose:
            raise SchemaError(
                f"{path}: has both images and folders of images ({loose[0].name} and {folders[0].name}/);"
                " move each image into the folder of its label",
                path=path,
            )
        self._files: list[_File] = []
        if folders:
            self.labels = (
                dict(labels)
                if labels is not None
                else {folder.name: number for number, folder in enumerate(folders)}
            )
            for folder in folders:
                if folder.name not in self.labels:
                    raise SchemaError(
                        f"{folder.path}: {folder.name!r} is not one of the {len(self.labels)} labels",
                        path=folder.path,
                    )
                self._walk(folder.path, f"{folder.name}/", self.labels[folder.name], [folder.path])
        else:
            self._files = [_File(one.path, one.name, None, one.stat().st_size) for one in loose]
        if not self._files:
            raise NotFoundError(f"{path}: the folder and its sub-folders have no image", path=path)
        self.total_bytes = sum(file.size_bytes for file in self._files)
        self.features = {"image_raw": "bytes", "filename": "bytes"} | dict.fromkeys(
            ("height", "width", "depth"), "int64"
        )
        if self.labels is not None:
            self.features["label"] = "int64"

    def __iter__(self) -> Iterator[Item]:
        work = Work(None, 0, self._executor)
        ahead = _GROUPS if self._executor is None else _MORE_GROUPS
        with contextlib.closing(work.stream(_read_images, self._groups(), _THREADS, ahead=ahead)) as groups:
            for items in groups:
                yield from self._counted(items)

    def _counted(self, items: list[Item]) -> Iterator[Item]:
        for item in items:
            if not isinstance(item, ShardkeepError):
                self.done_bytes += len(item["image_raw"])
            yield item

    def _groups(self) -> Iterator[_Group]:
        return map(_Group, divide(self._files, most_bytes=_GROUP_BYTES, most_files=_GROUP_FILES))

    def _walk(self, path: str, name: str, label: int, above: list[str]) -> None:
        folders, files = _entries(path)
        self._files += [_File(one.path, name + one.name, label, one.stat().st_size) for one in files]
        for folder in folders:
            if any(os.path.samefile(folder.path, one) for one in above):
                raise SchemaError(f"{folder.path}: a link to a folder above it; remove it", path=folder.path)
            self._walk(folder.path, f"{name}{folder.name}/", label, [*above, folder.path])


def _entries(path: str, *, hidden: bool = False) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]]]:
    """Return the folders and the files in a folder, sorted, without names that begin with a dot.

    With `hidden`, files with such names are returned too.
    """
    with os.scandir(path) as entries:
        found = sorted(entries, key=lambda one: one.name)
    folders = [one for one in found if one.is_dir() and not one.name.startswith(".")]
    return folders, [one for one in found if not one.is_dir() and (hidden or not one.name.startswith("."))]


def _is_image(entry: os.DirEntry[str]) -> bool:
    """Return True if the name or the content is that of an image, also of a format that is not supported."""
    if entry.name.startswith("."):
        return False
    if os.path.splitext(entry.name)[1].lower() in _IMAGE_SUFFIXES:
        return True
    with open(entry.path, "rb") as file, reading_from(entry.path):
        return identify_bytes(file.read(HEAD_BYTES)).described.endswith(" image")


def _read_images(group: _Group, _tick: Tick) -> list[Item]:
    found: list[Item] = []
    for file in group.files:
        try:
            with open(file.path, "rb") as opened, reading_from(file.path):
                features = image_features(opened.read())
        except ShardkeepError as error:
            found.append(
                type(error)(f"{file.path}: {error}", path=file.path, offset_bytes=error.offset_bytes)
            )
            continue
        features["filename"] = os.fsencode(file.name)
        if file.label is not None:
            features["label"] = file.label
        found.append(features)
    return found


def read_labels(labels: Mapping[str, int] | str | os.PathLike[str]) -> dict[str, int]:
    """Return a map of labels, from a mapping or from a file that `pack` wrote.

    Returns
    -------
    dict of str to int

    Raises
    ------
    FormatError
        The file is not JSON of this form.
    NotFoundError
        The file does not exist.
    """
    if isinstance(labels, Mapping):
        return dict(labels)
    path = local_path(labels)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no file of labels found", path=path) from None
    except ValueError as error:
        raise FormatError(f"{path}: not valid JSON ({error})", path=path) from None
    if not isinstance(found, dict) or not all(isinstance(number, int) for number in found.values()):
        raise FormatError(f"{path}: not a map of labels; expected {{name: number, …}}", path=path)
    return found
