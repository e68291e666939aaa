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
    "Engine",
    "FrameWriter",
    "KnownFiles",
    "RecordFile",
    "RecordIterator",
    "RecordSalvage",
    "WireError",
    "correct_flipped_bits",
    "crc32c",
    "decode_example",
    "decode_sequence_example",
    "descriptor_usage",
    "encode_example",
    "encode_sequence_example",
    "find_flipped_bit",
    "hdf5_damage",
    "hdf5_inspect",
    "hdf5_virtual_dataset",
    "hdf5_virtual_datasets",
    "image_shape",
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

# -- checksum.rs

def crc32c(data: bytes | npt.NDArray[np.uint8], before: int = 0, /) -> int: ...
def masked_crc32c(data: bytes, /) -> int: ...
def mask_crc(crc: int, /) -> int: ...
def find_flipped_bit(data: bytes, stored: int, /) -> tuple[Literal["data", "checksum"], int] | None: ...
def correct_flipped_bits(frame: bytes, /) -> tuple[bytes, str] | None: ...

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

# -- hdf5.rs

def lookup3(data: bytes, /) -> int: ...
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

# -- hdf5_inspect.rs

def hdf5_inspect(
    paths: list[str], /, *, lock: bool, rows: bool
) -> list[
    tuple[tuple[int, int, int, int], bytes | None, list[tuple[bytes, bytes, tuple[Any, ...] | None]]] | None
]: ...

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
    ) -> RecordIterator: ...
    @property
    def compression(self) -> _Compression: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __next__(self) -> bytes: ...

@final
class RecordFile:
    def __new__(cls, path: _Path, starts: npt.NDArray[np.uint64], *, verify: bool = True) -> RecordFile: ...
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
        starts: Sequence[npt.NDArray[np.uint64]],
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
    def submit(self, records: npt.NDArray[np.uint64], rows: int, /) -> None: ...
    def take(self) -> dict[str, Any] | None: ...
    def gathered(self) -> dict[str, Any]: ...
