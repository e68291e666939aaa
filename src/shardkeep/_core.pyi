# The Rust half, in the order of the files of crates/shardkeep-py/src.

import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "ChunkCopier",
    "ChunkCopy",
    "ColumnBuilder",
    "CompressedSalvage",
    "Engine",
    "FrameWriter",
    "Hdf5Dataset",
    "Hdf5Object",
    "Hdf5Salvage",
    "Hdf5Superblock",
    "KnownFiles",
    "RecordFile",
    "RecordIterator",
    "RecordPositions",
    "RecordSalvage",
    "WireError",
    "assign_files",
    "correct_flipped_bits",
    "crc32c",
    "damaged_extent",
    "decode_example",
    "decode_sequence_example",
    "descriptor_usage",
    "encode_example",
    "encode_sequence_example",
    "find_flipped_bit",
    "fletcher32",
    "hdf5_damage",
    "hdf5_flipped_bit",
    "hdf5_inspect",
    "hdf5_salvage",
    "hdf5_virtual_dataset",
    "hdf5_virtual_datasets",
    "image_shape",
    "interleave_reads",
    "interleave_slots",
    "lookup3",
    "mask_crc",
    "masked_crc32c",
    "protobuf_fields",
    "protobuf_varint",
    "record_content",
    "scan_around_damage",
    "scan_frames",
    "scan_part",
    "set_descriptor_limit",
    "sniff_compression",
]

_Path = str | os.PathLike[str]
_Compression = Literal["gzip", "zlib", "zstd"] | None

_I64 = npt.NDArray[np.int64]

# -- assignment.rs

def assign_files(sizes: _I64, world_size: int, /) -> _I64: ...
def interleave_slots(counts: _I64, cycle_length: int, /) -> tuple[_I64, _I64, _I64]: ...
def interleave_reads(counts: _I64, bounds: _I64, cycle_length: int, rows: _I64, /) -> _I64: ...

# -- checksum.rs

def crc32c(data: bytes | npt.NDArray[np.uint8], before: int = 0, /) -> int: ...
def masked_crc32c(data: bytes, /) -> int: ...
def mask_crc(crc: int, /) -> int: ...
def find_flipped_bit(data: bytes, stored: int, /) -> tuple[Literal["data", "checksum"], int] | None: ...
def correct_flipped_bits(frame: bytes, /) -> tuple[bytes, str] | None:
    """Return a frame with one flipped bit in its header, one after it, or both corrected, and a description.

    None if nothing or more than that is wrong, or if the payload is longer than 1 MiB: in longer payloads
    arbitrary damage looks like a flipped bit too often.
    """

# -- chunk_copy.rs

@final
class ChunkCopier:
    def __new__(cls, threads: int, /) -> ChunkCopier: ...
    def begin(
        self,
        source: int,
        result: int,
        addresses: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        /,
    ) -> ChunkCopy: ...

@final
class ChunkCopy:
    def wait(self) -> tuple[npt.NDArray[np.uint32], tuple[Literal["read", "write"], int, int] | None]: ...

# -- descriptors.rs

def descriptor_usage() -> dict[str, int]: ...
def set_descriptor_limit(limit: int, /) -> None: ...

# -- hdf5/metadata.rs

def lookup3(data: bytes, /) -> int: ...
def fletcher32(data: bytes | memoryview, /) -> tuple[int, int]: ...
def hdf5_damage(
    path: str, /, *, lock: bool, most_structures: int, rows: bool
) -> tuple[bool, tuple[str, int | None] | None]: ...
def hdf5_virtual_datasets(fd: int, most_objects: int, /) -> list[bytes] | None: ...
def hdf5_virtual_dataset(
    fd: int, path: bytes, /
) -> (
    tuple[
        list[int],
        bytes,
        list[bytes],
        list[bytes],
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
    ]
    | None
): ...

# -- hdf5/inspect.rs

def hdf5_inspect(
    paths: list[str], /, *, lock: bool, rows: bool
) -> list[
    tuple[tuple[int, int, int, int], bytes | None, list[tuple[bytes, bytes, tuple[Any, ...] | None]]] | None
]: ...

# -- hdf5/salvage.rs

def hdf5_flipped_bit(data: bytes, /) -> int | None:
    """Return the number of the only bit whose flip makes the lookup3 checksum at the end of `data` right.

    None if the checksum is right, no flip or more than one makes it right, or `data` has more than 4096
    bytes. Of n bytes with more wrong bits, a flip matches by chance with a probability of 8 n / 2**32.
    """

def hdf5_salvage(path: str, /) -> Hdf5Salvage:
    """Return what is left of a file that no process is writing.

    All offsets count from the first byte of the file. A structure with a checksum is used only if the
    checksum is right, or after the correction of one flipped bit. Raises OSError.
    """

@final
class Hdf5Salvage:
    """What is left of a file.

    `root_source` is "superblock", "usual place" (directly after the superblock), "only candidate" (the only
    group to which no link leads), or None. `objects` has first those that links reach from the root, then
    those that a search found. A search also finds objects that were deleted: they matter only if links are
    lost. `ambiguous` has nodes of chunks that no tree names, and that several datasets can own, or one that
    is lost: offset of the node, offsets of the datasets, number of chunks. `damage` has structure, offset,
    size and, where it was corrected, the number of the flipped bit, from bit 0 of the first byte of the
    structure. `is_complete` is False if the search ended early.
    """

    @property
    def base(self) -> int: ...
    @property
    def superblock(self) -> Hdf5Superblock | None: ...
    @property
    def root(self) -> int | None: ...
    @property
    def root_source(self) -> str | None: ...
    @property
    def objects(self) -> list[Hdf5Object]: ...
    @property
    def ambiguous(self) -> list[tuple[int, list[int], int]]: ...
    @property
    def damage(self) -> list[tuple[str, int, int, int | None]]: ...
    @property
    def is_complete(self) -> bool: ...

@final
class Hdf5Superblock:
    """A superblock at the base, after the correction of a flipped bit.

    `checksum_is_right` is None for the versions 0 and 1, which have none. `end`, `extension` and `root` are
    addresses: they count from the base.
    """

    @property
    def version(self) -> int: ...
    @property
    def offset_width(self) -> int: ...
    @property
    def length_width(self) -> int: ...
    @property
    def checksum_is_right(self) -> bool | None: ...
    @property
    def flags(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def extension(self) -> int | None: ...
    @property
    def root(self) -> int | None: ...
    @property
    def size_bytes(self) -> int: ...

@final
class Hdf5Object:
    """An object of a file.

    `kind` is "group", "dataset", "type", "other", or "lost": a link leads to a header that is damaged.
    `path` has no leading "/"; it is empty for the root, and None if no link leads from the root to the
    object. `is_checked` is True if the header has a checksum, which is right. `is_whole` is False if a part
    of the header is lost. `messages` has kind, flags and data of each message. `links` has name (None if it
    is lost), kind ("hard", "soft", "external") and target: an offset, a path, or a file and a path.
    `attributes` has name, datatype message, shape (None for the null dataspace), values and whether a
    checksum was right. `dataset` is None if shape, type or layout of a dataset are lost, or contradict each
    other.
    """

    @property
    def offset(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def path(self) -> bytes | None: ...
    @property
    def is_checked(self) -> bool: ...
    @property
    def is_whole(self) -> bool: ...
    @property
    def extents(self) -> list[tuple[int, int]]: ...
    @property
    def messages(self) -> list[tuple[int, int, bytes]]: ...
    @property
    def links(self) -> list[tuple[bytes | None, str, Any]]: ...
    @property
    def links_are_whole(self) -> bool: ...
    @property
    def attributes(self) -> list[tuple[bytes, bytes, tuple[int, ...] | None, bytes, bool]]: ...
    @property
    def attributes_are_whole(self) -> bool: ...
    @property
    def dataset(self) -> Hdf5Dataset | None: ...

@final
class Hdf5Dataset:
    r"""The properties of a dataset.

    `limits` is the largest shape; None for an axis without a limit. `datatype` is the datatype message;
    h5py decodes it with ``h5t.decode(b"\x03\x00" + datatype)``. `filters` has id, flags, name and values of
    each filter; None if they are lost. `fill_value` is None for zeros. `layout` is "compact" (with
    `value`), "contiguous" (with offset and size as `extent`, None if nothing was written), "chunked",
    "virtual" or "external". `is_contradicted` is True if contiguous values share bytes with something that
    has a stronger proof. `index` is "btree1", "btree2", "fixed array", "extensible array", "single" or
    "implicit". `edges_unfiltered` is True if chunks that the shape cuts are stored without filters.

    `chunks` has an array for each property of the chunks: first element, a row for each chunk; offset in
    the file; stored size; filter mask; proof. A proof is 0 where a checksum is right, 1 where the index has
    none, 2 where a node was found by search and no other dataset of the file can own it (it may be of a
    deleted dataset), 3 where the chunk shares bytes with something else or cannot be right, 4 where it ends
    beyond the end of the file. Only chunks with 0 to 2 may be used.

    `lost_places` has a part of the index that is lost: its offset, the first element of the first chunk of
    the part, and that of the first chunk after it, in row-major order; None where a bound is not known. A
    place without a chunk was never written, unless it is in a lost part.
    """

    @property
    def shape(self) -> tuple[int, ...] | None: ...
    @property
    def limits(self) -> tuple[int | None, ...]: ...
    @property
    def datatype(self) -> bytes: ...
    @property
    def value_bytes(self) -> int: ...
    @property
    def filters(self) -> list[tuple[int, int, bytes, list[int]]] | None: ...
    @property
    def fill_value(self) -> bytes | None: ...
    @property
    def layout(self) -> str | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def extent(self) -> tuple[int, int] | None: ...
    @property
    def is_contradicted(self) -> bool: ...
    @property
    def chunk_shape(self) -> tuple[int, ...] | None: ...
    @property
    def index(self) -> str | None: ...
    @property
    def edges_unfiltered(self) -> bool: ...
    @property
    def chunks(
        self,
    ) -> tuple[
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        npt.NDArray[np.uint32],
        npt.NDArray[np.uint8],
    ]: ...
    @property
    def lost_places(self) -> list[tuple[int, tuple[int, ...] | None, tuple[int, ...] | None]]: ...

# -- known_files.rs

@final
class KnownFiles:
    def __new__(cls, paths: Sequence[bytes], /) -> KnownFiles: ...
    def get(self, file: int, /) -> tuple[bytes, tuple[int, int, int, int] | None]: ...
    def set(self, file: int, path: bytes, state: tuple[int, int, int, int] | None, /) -> None: ...
    def changed(self) -> npt.NDArray[np.int64]: ...
    def take(
        self,
        files: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        times: npt.NDArray[np.int64],
        /,
        *,
        lock: bool,
    ) -> npt.NDArray[np.int64]: ...
    def read_into(
        self,
        buffer: npt.NDArray[np.uint8],
        files: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        /,
        *,
        lock: bool,
    ) -> npt.NDArray[np.int64]: ...

# -- positions.rs

@final
class RecordPositions:
    """The offsets of the records of many shards, packed in two to three bytes each.

    `checksums` are CRC32C of the offsets of each shard as 8-byte little-endian integers. `mapped` has the
    offsets in the first `size_bytes` of a file, from byte `at` on, where `packed` wrote them, followed by at
    least 8 other bytes.
    """

    def __new__(cls, starts: Sequence[npt.NDArray[np.uint64]]) -> RecordPositions: ...
    @staticmethod
    def joined(parts: Sequence[RecordPositions]) -> RecordPositions: ...
    @staticmethod
    def mapped(
        fd: int,
        size_bytes: int,
        at: int,
        records: npt.NDArray[np.uint64],
        widths: npt.NDArray[np.uint8],
        checksums: npt.NDArray[np.uint32],
        /,
    ) -> RecordPositions: ...
    def __len__(self) -> int: ...
    @property
    def records(self) -> npt.NDArray[np.uint64]: ...
    @property
    def sizes_bytes(self) -> npt.NDArray[np.uint64]: ...
    @property
    def widths(self) -> npt.NDArray[np.uint8]: ...
    @property
    def checksums(self) -> npt.NDArray[np.uint32]: ...
    def packed(self) -> bytes: ...
    def starts(self, shard: int) -> npt.NDArray[np.uint64]: ...

# -- records.rs

@final
class RecordIterator:
    def __new__(
        cls,
        source: Any,
        *,
        compression: Literal["auto"] | _Compression = "auto",
        verify: bool = True,
        name: _Path | None = None,
        seekable: bool = False,
        most_bytes: int | None = None,
    ) -> RecordIterator: ...
    @property
    def compression(self) -> _Compression: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __next__(self) -> bytes: ...

@final
class RecordFile:
    def __new__(
        cls,
        path: _Path,
        positions: RecordPositions | npt.NDArray[np.uint64],
        shard: int = 0,
        *,
        verify: bool = True,
    ) -> RecordFile: ...
    def read_many(self, indices: npt.NDArray[np.uint64], /) -> list[bytes]: ...

def scan_frames(
    paths: Sequence[_Path], *, verify: bool = False, threads: int = 1
) -> list[npt.NDArray[np.uint64]]: ...
def scan_part(
    path: _Path, *, offset_bytes: int, record: int, until_bytes: int, verify: bool = False
) -> npt.NDArray[np.uint64]: ...
def sniff_compression(path: _Path, /) -> _Compression: ...

# -- salvage.rs

@final
class RecordSalvage:
    def __new__(cls, path: _Path, /) -> RecordSalvage: ...
    def advance(self, size_bytes: int, /) -> int: ...
    def read_into(self, buffer: npt.NDArray[np.uint8], /) -> int: ...
    @property
    def part_count(self) -> int: ...
    def parts(
        self, first: int, last: int, /
    ) -> list[tuple[Literal["kept", "repaired", "lost"], str, int, int, int, int]]: ...

def scan_around_damage(path: _Path, /) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]: ...
def damaged_extent(path: _Path, offset_bytes: int, /) -> tuple[int, bool]: ...

@final
class CompressedSalvage:
    def __new__(cls, path: _Path, compression: _Compression = None, /) -> CompressedSalvage: ...
    @property
    def compression(self) -> _Compression: ...
    @property
    def records(self) -> int: ...
    @property
    def position_bytes(self) -> int: ...
    def advance(self, size_bytes: int, writer: FrameWriter | None = None, /) -> bool: ...
    def parts(
        self,
    ) -> list[tuple[Literal["kept", "repaired", "lost"], str, int, int | None, int | None, int | None]]: ...

# -- writing.rs

@final
class FrameWriter:
    def __new__(
        cls, fd: int, path: _Path, *, compression: _Compression = None, level: int = 6
    ) -> FrameWriter: ...
    @property
    def records(self) -> int: ...
    @property
    def written_bytes(self) -> int: ...
    def write(self, record: bytes, /) -> None: ...
    def write_rows(
        self,
        names: list[str],
        columns: list[tuple[_Values, int | npt.NDArray[np.int64]]],
        rows: int,
        /,
    ) -> None: ...
    def flush(self) -> None: ...
    def finish(self) -> None: ...

# -- columns.rs

_BytesAs = Literal["objects", "buffers"]

@final
class ColumnBuilder:
    def __new__(
        cls, features: Sequence[tuple[Any, ...]], rows: int, *, bytes_as: _BytesAs = "objects"
    ) -> ColumnBuilder: ...
    def fill(self, records: list[bytes], /, *, path: _Path | None = None, first_record: int = 0) -> None: ...
    def finish(self) -> dict[str, Any]: ...

def image_shape(data: bytes, /) -> tuple[int, int, int] | None: ...

# -- example.rs

_Values = list[bytes] | npt.NDArray[np.int64] | npt.NDArray[np.float32]

def encode_example(names: list[str], values: list[_Values], /) -> bytes: ...
def decode_example(record: bytes, /) -> dict[str, Any]: ...
def encode_sequence_example(
    names: list[str],
    values: list[_Values],
    list_names: list[str],
    lists: list[list[_Values | None]],
    /,
) -> bytes: ...
def decode_sequence_example(record: bytes, /) -> tuple[dict[str, Any], dict[str, Any]]: ...
def record_content(record: bytes, /) -> str | None: ...

# -- protobuf.rs

class WireError(ValueError): ...

def protobuf_fields(data: bytes, at: int, end: int, /) -> list[tuple[int, int, int]]: ...
def protobuf_varint(data: bytes, at: int, /) -> tuple[int, int]: ...

# -- engine.rs

@final
class Engine:
    def __new__(
        cls,
        paths: Sequence[_Path],
        positions: RecordPositions | Sequence[npt.NDArray[np.uint64]],
        features: Sequence[tuple[Any, ...]] | None = None,
        *,
        threads: int = 1,
        verify: bool = True,
        bytes_as: _BytesAs = "objects",
        on_corrupt: Literal["raise", "skip", "repair"] = "raise",
        holes: npt.NDArray[np.uint64] | None = None,
        gather: bool = False,
    ) -> Engine: ...
    @property
    def pending(self) -> int: ...
    @property
    def faults(self) -> list[tuple[int, bool, int, int, str]]: ...
    @property
    def is_foreign(self) -> bool: ...
    def release(self, shard: int, /) -> None: ...
    def submit(self, records: npt.NDArray[np.uint64], rows: int, /) -> None: ...
    def take(self) -> dict[str, Any] | None: ...
    def gathered(self) -> dict[str, Any]: ...
