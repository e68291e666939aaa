"""Magic numbers of files that are mistaken for TFRecord or HDF5 files, with advice for each."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Signature", "find_signature"]


class Signature(NamedTuple):
    """Bytes at an offset, and the kind of a file that has them there."""

    offset_bytes: int
    magic: bytes
    described: str
    advice: str = ""


_UNPACK = "unpack it first"
_FETCH = "fetch the file again"
_ANNEX = "run `git annex get`"

# The signature chunk with which every file begins, by the format's own description (google/riegeli,
# doc/riegeli_records_file_format.md). An ArrayRecord file is made of the same chunks.
_RIEGELI = bytes.fromhex(
    "83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a90000000000000000e19f13c0e9b1c37273"
) + bytes(15)
# A longer signature is listed before a prefix of it.
_SIGNATURES = (
    # -- what stands in for data that is elsewhere
    Signature(
        0,
        b"version https://git-lfs.github.com/spec/",
        "a git-lfs pointer: the data was never downloaded",
        "run `git lfs pull`",
    ),
    Signature(
        0,
        b"version https://hawser.github.com/spec/",
        "a git-lfs pointer: the data was never downloaded",
        "run `git lfs pull`",
    ),
    Signature(
        0, b"# xet version ", "a git-xet pointer: the data was never downloaded", "run `git xet checkout`"
    ),
    Signature(0, b"/annex/objects/", "a git-annex pointer: the data was never downloaded", _ANNEX),
    Signature(
        0, b"../.git/annex/objects/", "a git-annex link saved as text: the data was never downloaded", _ANNEX
    ),
    Signature(
        0, b".git/annex/objects/", "a git-annex link saved as text: the data was never downloaded", _ANNEX
    ),
    Signature(0, b"outs:\n- md5: ", "a DVC pointer: the data was never downloaded", "run `dvc pull`"),
    Signature(0, b"HTTP/1.", "an answer of a web server, saved with its headers", _FETCH),
    Signature(0, b"HTTP/2", "an answer of a web server, saved with its headers", _FETCH),
    # -- archives and compressed data
    Signature(0, b"PK\x03\x04", "a zip archive (or .npz, .pt)", _UNPACK),
    Signature(0, b"PK\x05\x06", "an empty zip archive"),
    Signature(257, b"ustar", "a tar archive (WebDataset shards are tar files)", _UNPACK),
    *(Signature(0, b"BZh%d1AY&SY" % level, "bzip2-compressed data", _UNPACK) for level in range(1, 10)),
    *(Signature(0, b"BZh%d\x17\x72\x45\x38\x50\x90" % level, "empty bzip2 data") for level in range(1, 10)),
    Signature(0, b"\xfd7zXZ\x00", "xz-compressed data", _UNPACK),
    Signature(0, b"\x5d\x00\x00\x80\x00\xff", "LZMA-compressed data", _UNPACK),
    Signature(0, b"\x28\xb5\x2f\xfd", "zstd-compressed data", _UNPACK),
    *(
        Signature(0, b"%c\x2a\x4d\x18" % low, "zstd- or lz4-compressed data", _UNPACK)
        for low in range(0x50, 0x60)
    ),
    Signature(0, b"\x04\x22\x4d\x18", "lz4-compressed data", _UNPACK),
    Signature(0, b"\x02\x21\x4c\x18", "lz4-compressed data", _UNPACK),
    Signature(0, b"\xff\x06\x00\x00sNaPpY", "snappy-compressed data", _UNPACK),
    Signature(0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    Signature(0, b"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    Signature(0, b"\x1f\x9d", "data of compress(1)", _UNPACK),
    # -- other containers of records, rows and tensors
    Signature(
        0, _RIEGELI, "an ArrayRecord or Riegeli file", "read it with its own library and write TFRecords"
    ),
    Signature(0, b"PAR1", "a Parquet file"),
    Signature(0, b"PARE", "an encrypted Parquet file"),
    Signature(0, b"ARROW1", "an Arrow file"),
    Signature(0, b"FEA1", "a Feather file of version 1"),
    Signature(0, b"\xff\xff\xff\xff\x10\x00\x00\x00", "an Arrow IPC stream"),
    Signature(0, b"ORC", "an ORC file"),
    Signature(0, b"Obj\x01", "an Avro file"),
    Signature(0, b"\x93NUMPY", "a NumPy .npy file"),
    Signature(0, b"SQLite format 3\x00", "an SQLite database"),
    Signature(8, b"DUCK", "a DuckDB database"),
    Signature(16, b"\xde\xc0\xef\xbe", "an LMDB database"),
    Signature(0, b"\x0a\x23\xd7\xce", "an MXNet RecordIO file", "read it with MXNet and write TFRecords"),
    Signature(0, b"SEQ\x06", "a Hadoop SequenceFile"),
    Signature(0, b"\x0e\x03\x13\x01", "an HDF4 file", "convert it to HDF5"),
    Signature(0, b"CDF\x01", "a netCDF-3 file"),
    Signature(0, b"CDF\x02", "a netCDF-3 file"),
    Signature(0, b"CDF\x05", "a netCDF-3 file"),
    Signature(0, b"MATLAB 5.0 MAT-file", "a MATLAB file"),
    Signature(0, b"GGUF", "a GGUF model"),
    Signature(0, b"\x80\x02", "a Python pickle"),
    Signature(0, b"\x80\x03", "a Python pickle"),
    Signature(0, b"\x80\x04\x95", "a Python pickle"),
    Signature(0, b"\x80\x05\x95", "a Python pickle"),
    # -- single items
    Signature(0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    Signature(0, b"\xff\xd8\xff", "a JPEG image"),
    Signature(0, b"GIF8", "a GIF image"),
    Signature(8, b"WEBP", "a WebP image"),
    Signature(8, b"WAVE", "a WAVE file"),
    Signature(128, b"DICM", "a DICOM file"),
    Signature(4, b"ftyp", "an MP4, HEIF or AVIF file"),
    Signature(0, b"%PDF-", "a PDF document"),
    Signature(0, b"\x7fELF", "a program or shared library"),
    Signature(0, b"#!", "a script"),
)


def find_signature(head: bytes) -> Signature | None:
    """Return the known signature of a file with these first bytes, or None.

    Examples
    --------
    >>> find_signature(b"PAR1 and so on").described
    'a Parquet file'
    """
    for signature in _SIGNATURES:
        if head.startswith(signature.magic, signature.offset_bytes) and not _may_be_length(head, signature):
            return signature
    return None


def _may_be_length(head: bytes, signature: Signature) -> bool:
    """Return True if a short signature may be the length of a TFRecord with a damaged checksum."""
    end = len(signature.magic)
    return signature.offset_bytes == 0 and end < 4 and len(head) >= 8 and not head[end:8].strip(b"\x00")
