"""What kind of file a path is, told from its first bytes and never from its name.

TFRecord has no magic number. What it has is better: the first twelve bytes are a length and the
checksum of that length, which random bytes pass once in four thousand million times. So a file
*is* a TFRecord when that checksum holds (through gzip or zlib too), and everything else is looked
up in a table of signatures, so that an error can say what the file is instead.
"""

from __future__ import annotations

import os
import stat
import zlib
from dataclasses import dataclass
from typing import Literal, NamedTuple

from shardkeep._core import masked_crc32c
from shardkeep.errors import FormatError, NotFoundError

__all__ = ["FileKind", "identify", "identify_bytes", "require_kind"]

KindName = Literal["tfrecord", "hdf5", "folder", "empty", "other"]
Compression = Literal["gzip", "zlib"]

HEAD_BYTES = 4096
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_FRAME_HEADER_BYTES = 12


@dataclass(frozen=True)
class FileKind:
    """What `identify` found.

    Attributes
    ----------
    name : {"tfrecord", "hdf5", "folder", "empty", "other"}
        An empty file is a valid TFRecord without records, and also what a writer leaves that died
        at once, so it is a kind of its own.
    described : str
        In words, with an article: ``"a gzip-compressed TFRecord file"``, ``"a zip archive"``.
    compression : {"gzip", "zlib"} or None
        How a TFRecord file is compressed as a whole.
    advice : str
        What to do with it, where the kind suggests something; otherwise empty.
    offset_bytes : int
        Where the content begins: behind the user block of an HDF5 file, otherwise 0.
    """

    name: KindName
    described: str
    compression: Compression | None = None
    advice: str = ""
    offset_bytes: int = 0


class _Signature(NamedTuple):
    offset_bytes: int
    magic: bytes
    described: str
    advice: str = ""


_WANTED: dict[KindName, str] = {"tfrecord": "a TFRecord file", "hdf5": "an HDF5 file", "folder": "a folder"}
_UNPACK = "unpack it first"
_SIGNATURES = (
    _Signature(
        0,
        b"version https://git-lfs.github.com/spec/",
        "a git-lfs pointer: the data was never downloaded",
        "run `git lfs pull`",
    ),
    _Signature(
        0, b"/annex/objects/", "a git-annex pointer: the data was never downloaded", "run `git annex get`"
    ),
    _Signature(0, b"PK\x03\x04", "a zip archive (or .npz, .pt)", _UNPACK),
    _Signature(0, b"PK\x05\x06", "an empty zip archive"),
    _Signature(257, b"ustar", "a tar archive (WebDataset shards are tar files)", _UNPACK),
    _Signature(0, b"BZh", "bzip2-compressed data", _UNPACK),
    _Signature(0, b"\xfd7zXZ\x00", "xz-compressed data", _UNPACK),
    _Signature(0, b"\x28\xb5\x2f\xfd", "zstd-compressed data", _UNPACK),
    _Signature(0, b"\x04\x22\x4d\x18", "lz4-compressed data", _UNPACK),
    _Signature(0, b"\xff\x06\x00\x00sNaPpY", "snappy-compressed data", _UNPACK),
    _Signature(0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    _Signature(0, b"PAR1", "a Parquet file"),
    _Signature(0, b"ARROW1", "an Arrow file"),
    _Signature(0, b"ORC", "an ORC file"),
    _Signature(0, b"Obj\x01", "an Avro file"),
    _Signature(0, b"\x93NUMPY", "a NumPy .npy file"),
    _Signature(0, b"SQLite format 3\x00", "an SQLite database"),
    _Signature(0, b"\x0a\x23\xd7\xce", "an MXNet RecordIO file"),
    _Signature(0, b"\x0e\x03\x13\x01", "an HDF4 file", "convert it to HDF5"),
    _Signature(0, b"CDF\x01", "a netCDF-3 file"),
    _Signature(0, b"CDF\x02", "a netCDF-3 file"),
    _Signature(0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    _Signature(0, b"\xff\xd8\xff", "a JPEG image"),
    _Signature(0, b"GIF8", "a GIF image"),
    _Signature(0, b"%PDF-", "a PDF document"),
    _Signature(0, b"\x7fELF", "a program or shared library"),
    _Signature(0, b"\x80\x02", "a Python pickle"),
    _Signature(0, b"\x80\x03", "a Python pickle"),
    _Signature(0, b"\x80\x04\x95", "a Python pickle"),
    _Signature(0, b"\x80\x05\x95", "a Python pickle"),
)


def identify(path: str | os.PathLike[str]) -> FileKind:
    """Tell what `path` is by looking at its bytes.

    Reads at most a few kilobytes, plus eight bytes at each power of two from 512 on, where HDF5
    allows its signature behind a user block.

    Raises
    ------
    NotFoundError
        If there is nothing at `path`.
    OSError
        If it cannot be read, for example for lack of permission.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.tfrecord"
    >>> _ = path.write_text("<!DOCTYPE html><title>Sign in</title>")
    >>> identify(path).described
    'an HTML page, perhaps a sign-in or error page saved by a download'
    """
    name = os.fspath(path)
    try:
        # O_NONBLOCK: a pipe without a writer must be named, not waited for.
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NotFoundError(f"{name}: there is no such file or folder", path=name) from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            return FileKind("folder", "a folder")
        if not stat.S_ISREG(status.st_mode):
            return FileKind("other", "a pipe, socket or device", advice="give a regular file")
        head = os.pread(descriptor, HEAD_BYTES, 0)
        found = identify_bytes(head)
        if found.name != "other":
            return found
        offset_bytes = 512
        while offset_bytes + len(_HDF5_SIGNATURE) <= status.st_size:
            if os.pread(descriptor, len(_HDF5_SIGNATURE), offset_bytes) == _HDF5_SIGNATURE:
                return FileKind(
                    "hdf5", f"an HDF5 file behind {offset_bytes:,} other bytes", offset_bytes=offset_bytes
                )
            offset_bytes *= 2
        return found
    finally:
        os.close(descriptor)


def identify_bytes(head: bytes) -> FileKind:
    """Tell what a file is from its first bytes alone; 4,096 are enough for everything known here.

    Examples
    --------
    >>> identify_bytes(b"PAR1 and so on").described
    'a Parquet file'
    """
    if not head:
        return FileKind("empty", "an empty file")
    if head.startswith(_HDF5_SIGNATURE):
        return FileKind("hdf5", "an HDF5 file")
    if _is_frame_header(head):
        return FileKind("tfrecord", "a TFRecord file")
    if head.startswith(b"\x1f\x8b"):
        return _identify_compressed(head, "gzip")
    if head[0] & 0x0F == 8 and len(head) >= 2 and int.from_bytes(head[:2], "big") % 31 == 0:
        inside = _identify_compressed(head, "zlib")
        if inside.name == "tfrecord":
            return inside
    for signature in _SIGNATURES:
        if head.startswith(signature.magic, signature.offset_bytes):
            return FileKind("other", signature.described, advice=signature.advice)
    return _identify_without_magic(head)


def require_kind(path: str | os.PathLike[str], *names: KindName, found: FileKind | None = None) -> FileKind:
    """Return what `path` is if it is one of `names`, and otherwise say what it is instead.

    Parameters
    ----------
    path : path
        The file to look at.
    *names : str
        The kinds that will do.
    found : FileKind, optional
        What `identify` said, where it has been asked already.

    Raises
    ------
    FormatError
        If it is of another kind; the message says which and what to do.
    NotFoundError
        If there is nothing at `path`.
    """
    kind = identify(path) if found is None else found
    if kind.name in names:
        return kind
    wanted = " or ".join(_WANTED[name] for name in names if name in _WANTED)
    advice = f"; {kind.advice}" if kind.advice else ""
    raise FormatError(f"{os.fspath(path)}: expected {wanted}, found {kind.described}{advice}", path=path)


def _is_frame_header(head: bytes) -> bool:
    if len(head) < _FRAME_HEADER_BYTES:
        return False
    return masked_crc32c(head[:8]) == int.from_bytes(head[8:12], "little")


def _identify_compressed(head: bytes, compression: Compression) -> FileKind:
    inside = b""
    rest = head
    # Members may be shorter than a header, and need not end where records do.
    while rest and len(inside) < _FRAME_HEADER_BYTES:
        stream = zlib.decompressobj(wbits=31 if compression == "gzip" else 15)
        try:
            inside += stream.decompress(rest, HEAD_BYTES)
        except zlib.error:
            return FileKind("other", f"damaged {compression} data")
        rest = stream.unused_data
    if _is_frame_header(inside):
        return FileKind("tfrecord", f"a {compression}-compressed TFRecord file", compression=compression)
    if not inside:
        # A gzip stream of nothing is how TensorFlow writes a compressed file without records.
        return FileKind("tfrecord", f"an empty {compression}-compressed file", compression=compression)
    return FileKind(
        "other",
        f"{compression}-compressed data; inside is {identify_bytes(inside).described}",
        advice=_UNPACK,
    )


def _identify_without_magic(head: bytes) -> FileKind:
    if not head.strip(b"\x00"):
        return FileKind(
            "other",
            "zero bytes only: a hole that a crash, a full disk or a network file system left",
            advice="fetch or write the file again",
        )
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return FileKind(
            "other",
            "an HTML page, perhaps a sign-in or error page saved by a download",
            advice="fetch the file again",
        )
    if start.startswith(b"<?xml"):
        return FileKind(
            "other",
            "an XML document, perhaps the error answer of an object store",
            advice="fetch the file again",
        )
    if len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return FileKind("other", "a safetensors file")
    text = _as_text(head)
    if text is None:
        return FileKind(
            "other",
            "binary data whose first 12 bytes are not the checked length of a TFRecord and which has"
            " no HDF5 signature",
            advice="if it was one, its beginning is damaged",
        )
    if start.startswith((b"{", b"[")):
        return FileKind("other", "JSON text")
    line = text.strip().splitlines()[0][:40] if text.strip() else ""
    return FileKind("other", f"plain text that begins {line!r}")


def _as_text(head: bytes) -> str | None:
    """Return `head` as text if it is printable UTF-8, apart from a character cut at its end."""
    for cut in range(4):
        try:
            text = head[: len(head) - cut].decode("utf-8")
        except UnicodeDecodeError:
            continue
        printable = all(char.isprintable() or char in "\t\r\n\f" for char in text)
        return text if text and printable else None
    return None
