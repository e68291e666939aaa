"""Recognition of the kind of a file, by its first bytes and never by its name.

TFRecord has no magic number, but its first twelve bytes are a length and the checksum of that length, which
random bytes match with a probability of 2^-32. A file counts as a TFRecord if that checksum matches (after
gzip or zlib decompression too). All others are compared with a table of signatures, so that an error can name
their kind.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
import zlib
from dataclasses import dataclass
from typing import Literal

from shardkeep import _core
from shardkeep._paths_in_messages import copy_of
from shardkeep.errors import BudgetError, FormatError, NotFoundError, ShardkeepError
from shardkeep.files.durable import reading_from
from shardkeep.files.kinds.frame_variants import HEADER_BYTES, find_variant, is_frame_header
from shardkeep.files.kinds.signatures import find_signature
from shardkeep.files.kinds.special import describe_special
from shardkeep.files.kinds.urls import local_path

__all__ = ["HDF5_SIGNATURE", "FileKind", "identify", "identify_bytes", "require_kind", "resembles_hdf5"]

KindName = Literal["tfrecord", "hdf5", "folder", "empty", "other"]
Compression = Literal["gzip", "zlib", "zstd"]

HEAD_BYTES = 4096
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class FileKind:
    """Kind of a file, as returned by `identify`.

    Attributes
    ----------
    name : {"tfrecord", "hdf5", "folder", "empty", "other"}
        "empty" is a separate kind: such a file is a valid TFRecord without records, or the remains of a
        killed writer.
    described : str
        Description with an article: ``"a gzip-compressed TFRecord file"``, ``"a zip archive"``.
    compression : {"gzip", "zlib"} or None
        Compression of a whole TFRecord file.
    advice : str
        Advice for the user, if the kind has one; otherwise empty.
    offset_bytes : int
        Start of the content: after the user block of an HDF5 file, otherwise 0.
    """

    name: KindName
    described: str
    compression: Compression | None = None
    advice: str = ""
    offset_bytes: int = 0

    @property
    def may_be_damaged_records(self) -> bool:
        """True if the kind is unknown, so that the file may be a TFRecord with a damaged start."""
        return self.described.startswith(("binary data", "zero bytes", "damaged"))

    @property
    def is_faulty_tfrecord(self) -> bool:
        """True for a TFRecord file of a faulty writer, or one that a transfer as text has changed."""
        return self.name == "other" and self.described.startswith("a TFRecord file")

    @property
    def stands_in(self) -> bool:
        """True for what a failed download, version control or a crash leaves in the place of data."""
        return self.name == "empty" or self.advice.startswith(("fetch", "run `"))

    @property
    def group(self) -> str:
        """Description without details of the file, for counting files by kind."""
        return re.split(r" that begins |, perhaps |; inside | whose first |: ", self.described)[0]


_WANTED: dict[KindName, str] = {"tfrecord": "a TFRecord file", "hdf5": "an HDF5 file", "folder": "a folder"}
_UNPACK = "unpack it first"
_FETCH = "fetch the file again"
# A gzip file that inflates to itself exists; ordinary files are compressed at most twice.
_MOST_LAYERS = 3


def identify(path: str | os.PathLike[str]) -> FileKind:
    """Return the kind of the file at `path`, from its bytes.

    Reads at most a few kilobytes, plus eight bytes at each power of two from 512 on, where HDF5 allows its
    signature after a user block.

    Raises
    ------
    NotFoundError
        `path` does not exist.
    OSError
        The file cannot be read, for example for lack of permission.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.tfrecord"
    >>> _ = path.write_text("<!DOCTYPE html><title>Sign in</title>")
    >>> identify(path).described
    'an HTML page, perhaps a sign-in or error page saved by a download'
    """
    name = local_path(copy_of(path))
    special = _special(name)
    if special is not None:
        return special
    try:
        # O_NONBLOCK: the open must not block if a pipe replaces the file at this moment.
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise _missing(name) from None
    try:
        with reading_from(name):
            return _identify_open(name, descriptor)
    finally:
        os.close(descriptor)


def _identify_open(name: str, descriptor: int) -> FileKind:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return _not_regular(status.st_mode)
    head = os.pread(descriptor, HEAD_BYTES, 0)
    found = identify_bytes(head)
    if found.name != "other":
        return found
    if head.startswith(_ZSTD_MAGIC) and _holds_records(name):
        return FileKind("tfrecord", "a zstd-compressed TFRecord file", compression="zstd")
    if status.st_size > len(head) and not head.strip(b"\x00"):
        found = _nul_bytes(f"zero bytes in its first {len(head):,}")
    offset_bytes = 512
    while offset_bytes + len(HDF5_SIGNATURE) <= status.st_size:
        if os.pread(descriptor, len(HDF5_SIGNATURE), offset_bytes) == HDF5_SIGNATURE:
            return FileKind(
                "hdf5", f"an HDF5 file after {offset_bytes:,} other bytes", offset_bytes=offset_bytes
            )
        offset_bytes *= 2
    return found


def _holds_records(name: str) -> bool:
    # Python has no zstd before 3.14: the native reader reads the first record.
    try:
        next(_core.RecordIterator(name, compression="zstd", verify=False, most_bytes=1 << 20), None)
    except BudgetError as error:
        return error.record is not None  # its first record is longer
    except (ShardkeepError, OSError):
        return False
    return True


def identify_bytes(head: bytes) -> FileKind:
    """Return the kind of a file from its first bytes alone; 4,096 are enough for every known kind.

    Examples
    --------
    >>> identify_bytes(b"PAR1 and so on").described
    'a Parquet file'
    """
    return _identify(head, _MOST_LAYERS)


def resembles_hdf5(head: bytes) -> bool:
    """Return True if most bytes of an HDF5 signature are there, at a place of one."""
    right = sum(a == b for a, b in zip(head, HDF5_SIGNATURE, strict=False))
    return right > len(HDF5_SIGNATURE) // 2


def _identify(head: bytes, layers: int) -> FileKind:
    if not head:
        return FileKind("empty", "an empty file")
    if head.startswith(HDF5_SIGNATURE):
        return FileKind("hdf5", "an HDF5 file")
    if is_frame_header(head):
        return FileKind("tfrecord", "a TFRecord file")
    if head.startswith(b"\x1f\x8b\x08"):
        return _identify_compressed(head, "gzip", layers)
    if head[0] & 0x8F == 8 and len(head) >= 2 and int.from_bytes(head[:2], "big") % 31 == 0:
        if head[1] & 0x20 and not head[:8].endswith(b"\x00\x00\x00"):
            return FileKind("other", "zlib-compressed data with a preset dictionary", advice=_UNPACK)
        inside = _identify_compressed(head, "zlib", layers)
        if inside.name == "tfrecord" or not inside.described.startswith("damaged"):
            return inside
    signature = find_signature(head)
    if signature is not None:
        return FileKind("other", signature.described, advice=signature.advice)
    variant = find_variant(head)
    if variant is not None:
        return FileKind("other", variant[0], advice=variant[1])
    return _identify_without_magic(head)


def require_kind(path: str | os.PathLike[str], *names: KindName, found: FileKind | None = None) -> FileKind:
    """Return the kind of `path` if it is one of `names`; otherwise raise an error that names the kind.

    Parameters
    ----------
    path : path
        Path of the file.
    *names : str
        The accepted kinds.
    found : FileKind, optional
        The result of `identify`, if it is known already.

    Raises
    ------
    FormatError
        The file is of another kind; the message names it and has advice.
    NotFoundError
        `path` does not exist.
    """
    kind = identify(path) if found is None else found
    if kind.name in names:
        return kind
    wanted = " or ".join(_WANTED[name] for name in names if name in _WANTED)
    advice = f"; {kind.advice}" if kind.advice else ""
    raise FormatError(f"{os.fspath(path)}: expected {wanted}, found {kind.described}{advice}", path=path)


def _special(name: str) -> FileKind | None:
    # Checked before the open: opening and closing a pipe would disturb its writer.
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        raise _missing(name) from None
    return None if stat.S_ISREG(mode) else _not_regular(mode)


def _not_regular(mode: int) -> FileKind:
    described = describe_special(mode) or "a special file"
    if stat.S_ISDIR(mode):
        return FileKind("folder", described, advice="pass the files in it, as the pattern DIR/*.tfrecord")
    return FileKind("other", described, advice="pass a regular file")


def _missing(name: str) -> NotFoundError:
    if not os.path.islink(name):
        return NotFoundError(f"{name or 'an empty name'}: no such file or folder", path=name)
    target = os.readlink(name)
    annex = "; run `git annex get`" if "annex/objects/" in target else ""
    return NotFoundError(f"{name}: the link leads to {target}, which does not exist{annex}", path=name)


def _identify_compressed(head: bytes, compression: Compression, layers: int) -> FileKind:
    inside = b""
    rest = head
    ended = True
    # A member may be shorter than a header, and may end inside a record.
    while rest and len(inside) < HEADER_BYTES:
        stream = zlib.decompressobj(wbits=31 if compression == "gzip" else 15)
        try:
            inside += stream.decompress(rest, HEAD_BYTES)
        except zlib.error:
            return FileKind("other", f"damaged {compression} data", advice=_FETCH)
        rest, ended = stream.unused_data, stream.eof
    if is_frame_header(inside):
        return FileKind("tfrecord", f"a {compression}-compressed TFRecord file", compression=compression)
    if not inside and (ended or len(head) >= HEAD_BYTES):
        # TensorFlow writes an empty gzip stream for a compressed file without records. A long name or comment
        # before the stream has the same effect here.
        described = f"an empty {compression}-compressed file" if ended else f"a {compression}-compressed file"
        return FileKind("tfrecord", described, compression=compression)
    if len(inside) < HEADER_BYTES and not ended:
        return FileKind("other", f"damaged {compression} data without content", advice=_FETCH)
    described = "still more compressed data" if layers == 0 else _identify(inside, layers - 1).described
    return FileKind("other", f"{compression}-compressed data; inside is {described}", advice=_UNPACK)


def _nul_bytes(described: str) -> FileKind:
    return FileKind(
        "other",
        f"{described}: a hole that a crash, a full disk or a network file system left",
        advice="fetch or write the file again",
    )


def _identify_without_magic(head: bytes) -> FileKind:
    if not head.strip(b"\x00"):
        return _nul_bytes("zero bytes only")
    text = _as_text(head)
    if text is not None:
        return _identify_text(text)
    if _is_safetensors(head):
        return FileKind("other", "a safetensors file", advice="read it with the safetensors library")
    return FileKind(
        "other",
        "binary data whose first 12 bytes are not a valid header of a TFRecord and which has"
        " no HDF5 signature",
        advice="if it was one, its start is damaged",
    )


def _identify_text(text: str) -> FileKind:
    start = text.lstrip()[:1024].lower()
    if start.startswith(("<!doctype html", "<html", "<head", "<title", "<body")):
        return FileKind(
            "other", "an HTML page, perhaps a sign-in or error page saved by a download", advice=_FETCH
        )
    if start.startswith(("<?xml", "<error>")):
        code = re.search(r"<Code>\s*(\w{1,40})\s*</Code>", text)
        what = f"the error answer {code[1]}" if code else "perhaps the error answer"
        return FileKind("other", f"an XML document, {what} of an object store", advice=_FETCH)
    if re.match(r'\{\s*"(error|errors|message|code|detail)"', start):
        return FileKind("other", "JSON text, perhaps the error answer of a server", advice=_FETCH)
    if start.startswith(("{", "[")):
        return FileKind("other", "JSON text")
    line = text.strip().splitlines()[0][:40] if text.strip() else ""
    return FileKind("other", f"plain text that begins {line!r}" if line else "blank text")


def _is_safetensors(head: bytes) -> bool:
    # Both the length and the start of the JSON header: one byte alone could be that of a damaged record.
    length = int.from_bytes(head[:8], "little")
    header = head[8 : 8 + length]
    return 2 <= length < 1 << 32 and header.startswith((b'{"', b"{}")) and _as_text(header) is not None


def _as_text(head: bytes) -> str | None:
    """Return `head` as text if it is printable UTF-8 or UTF-16; its last character may be cut."""
    encoding = "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return None
    printable = all(char.isprintable() or char in "\t\r\n\f" for char in text)
    return text if text and printable else None
