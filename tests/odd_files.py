"""Odd, damaged and hostile files, each with the expected result.

The checksum is implemented here again, so that a mistake in Shardkeep's cannot hide. Kinds come from
public bug reports, from formats that people mistake for TFRecord, and from what tools and file systems do to
files.

A file is read strictly: `whole` records come out, then `error` is raised, which names `record` and
`offset_bytes` (None if the error has none). `said` is in its message. The file name does not matter.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardkeep.errors import CorruptDataError, CorruptRecordError, FormatError, TruncatedFileError

__all__ = ["FRAME_BYTES", "RECORDS", "OddFile", "crc32c", "frame", "header", "mask", "odd_files"]

_TABLE = []
for _n in range(256):
    for _ in range(8):
        _n = (_n >> 1) ^ (0x82F63B78 if _n & 1 else 0)
    _TABLE.append(_n)


def crc32c(data: bytes) -> int:
    """CRC-32C, byte by byte."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def mask(crc: int) -> int:
    """TFRecord's mask."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def header(length: int) -> bytes:
    """The 12 bytes before a payload."""
    raw = struct.pack("<Q", length)
    return raw + struct.pack("<I", mask(crc32c(raw)))


def frame(payload: bytes) -> bytes:
    """A whole record as it lies in a file."""
    return header(len(payload)) + payload + struct.pack("<I", mask(crc32c(payload)))


RECORDS = [b"%04d" % i * 50 for i in range(10)]
FRAME_BYTES = 216
GOOD = b"".join(map(frame, RECORDS))


@dataclass(frozen=True)
class OddFile:
    """A file and what a strict reader must make of it."""

    name: str
    data: bytes
    story: str
    whole: int = 0
    error: type[CorruptDataError] | type[FormatError] | None = None
    record: int | None = None
    offset_bytes: int | None = None
    said: str = ""
    records: list[bytes] | None = None
    """What comes out where it is not the first `whole` of RECORDS."""

    @property
    def delivered(self) -> list[bytes]:
        """The records before the damage."""
        return RECORDS[: self.whole] if self.records is None else self.records[: self.whole]


def odd_files() -> list[OddFile]:
    """All of them."""
    groups = (_fine(), _undetectable(), _cut(), _damaged(), _packed(), _nearly(), _other_formats(), _texts())
    return [one for group in groups for one in group]


def _fine() -> Iterator[OddFile]:
    tiny = [b"", b"abc", b""]
    yield OddFile("good", GOOD, "ten records", 10)
    yield OddFile("empty", b"", "an empty file is a valid file")
    yield OddFile(
        "zero_length_records", b"".join(map(frame, tiny)), "empty records are valid", 3, records=tiny
    )
    halves = gzip.compress(GOOD[:1000]), gzip.compress(GOOD[1000:])
    yield OddFile("gzip", gzip.compress(GOOD), "compressed, to be recognised by itself", 10)
    yield OddFile("zlib", zlib.compress(GOOD), "as TensorFlow's ZLIB", 10)
    yield OddFile("zlib_small_window", _deflate(GOOD, wbits=9), "a window of 512 bytes", 10)
    yield OddFile("zlib_stored", zlib.compress(GOOD, 0), "level 0", 10)
    yield OddFile("gzip_members_split_in_a_record", b"".join(halves), "members end anywhere", 10)
    yield OddFile("gzip_empty_member", halves[0] + gzip.compress(b"") + halves[1], "an empty member", 10)
    yield OddFile("gzip_empty_member_first", gzip.compress(b"") + gzip.compress(GOOD), "an empty member", 10)
    members = b"".join(gzip.compress(GOOD[i : i + 1]) for i in range(FRAME_BYTES))
    yield OddFile("gzip_a_member_a_byte", members, "216 members of one byte", 1)
    yield OddFile("gzip_of_nothing", gzip.compress(b""), "TensorFlow's compressed file without records")
    yield OddFile("zlib_of_nothing", zlib.compress(b""), "the same with zlib")
    yield OddFile(
        "two_zlib_streams", zlib.compress(GOOD[:999]) + zlib.compress(GOOD[999:]), "concatenated", 10
    )
    for name, flags, extra in (
        ("extra", 4, struct.pack("<H", 6) + b"AB\x02\x00xy"),
        ("name", 8, b"train-00000.tfrecord\x00"),
        ("comment", 16, b"made by hand\x00"),
        ("long_name", 8, b"n" * 5000 + b"\x00"),
    ):
        yield OddFile(f"gzip_with_{name}", _gzip(GOOD, flags, extra), f"a gzip header with a {name}", 10)
    yield OddFile("gzip_with_header_crc", _gzip(GOOD, 2), "a gzip header with a checksum of its own", 10)
    flushed = zlib.compressobj(wbits=31)
    pieces = b"".join(flushed.compress(frame(r)) + flushed.flush(zlib.Z_FULL_FLUSH) for r in RECORDS)
    yield OddFile("gzip_flushed_often", pieces + flushed.flush(), "a writer that flushes each record", 10)
    event = b"\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x1a\x0dbrain.Event:2"
    yield OddFile("event_file", frame(event), "TensorBoard's files have the same frame", 1, records=[event])
    inner = [GOOD]
    yield OddFile("a_tfrecord_in_a_record", frame(GOOD), "a payload that holds frames", 1, records=inner)
    yield OddFile(
        "a_gzip_in_a_record",
        frame(gzip.compress(GOOD)),
        "a payload that is a gzip file",
        1,
        records=[gzip.compress(GOOD)],
    )
    for length in (0x0178, 0x1F8B, 0x8B1F, 10, 13):
        payload = [bytes(length)]
        yield OddFile(
            f"first_length_{length}",
            frame(*payload),
            "a length that looks like a magic number",
            1,
            records=payload,
        )


def _undetectable() -> Iterator[OddFile]:
    # Each frame is checked by itself and nothing binds them together: an index or a count can tell.
    swapped = [*RECORDS[:3], RECORDS[4], RECORDS[3], *RECORDS[5:]]
    yield OddFile(
        "records_swapped", b"".join(map(frame, swapped)), "cannot be told from the file", 10, records=swapped
    )
    twice = [*RECORDS[:3], RECORDS[2], *RECORDS[3:]]
    yield OddFile(
        "record_repeated", b"".join(map(frame, twice)), "cannot be told from the file", 11, records=twice
    )
    missing = RECORDS[:3] + RECORDS[4:]
    yield OddFile(
        "record_missing", b"".join(map(frame, missing)), "cannot be told from the file", 9, records=missing
    )
    yield OddFile("cut_between_records", GOOD[: 7 * FRAME_BYTES], "cannot be told from the file", 7)
    yield OddFile("two_files_concatenated", GOOD * 2, "legal", 20, records=RECORDS * 2)


def _truncated(name: str, tail: bytes, story: str) -> OddFile:
    return OddFile(name, GOOD + tail, story, 10, TruncatedFileError, 10, len(GOOD), "ends inside")


def _cut() -> Iterator[OddFile]:
    for count in (1, 5, 11):
        yield _truncated(
            f"partial_header_{count}", header(200)[:count], f"a writer died {count} bytes into a header"
        )
    yield _truncated("header_only", header(200), "a writer died after a header")
    yield _truncated("partial_data", frame(RECORDS[0])[:100], "a writer died inside the data")
    yield _truncated("partial_footer", frame(RECORDS[0])[:-2], "a writer died inside the last CRC")
    yield _truncated("newline_at_the_end", b"\n", "an editor ended the last line")
    for exponent in (31, 32, 34, 35, 40, 47):
        story = f"a header with a right CRC that claims 2^{exponent} bytes"
        yield _truncated(f"length_2_{exponent}", header(1 << exponent) + b"x" * 100, story)
    for name, length in (
        ("2_63", 1 << 63),
        ("largest", (1 << 64) - 1),
        ("overflow_16", (1 << 64) - 16),
        ("overflow_12", (1 << 64) - 12),
        ("overflow_4", (1 << 64) - 4),
        ("one_too_many", 101),
    ):
        yield _truncated(f"length_{name}", header(length) + b"x" * 100, "no file can be so long")
    last_block = len(GOOD) - len(GOOD) % 512
    record = last_block // FRAME_BYTES
    yield OddFile(
        "last_block_missing",
        GOOD[:last_block],
        "a copy in whole blocks",
        record,
        TruncatedFileError,
        record,
        record * FRAME_BYTES,
        "ends inside",
    )
    yield OddFile("first_frame_cut", frame(RECORDS[0])[:50], "nothing is whole", 0, TruncatedFileError, 0, 0)
    yield OddFile(
        "claims_all_at_once", header(1 << 45), "a header and nothing else", 0, TruncatedFileError, 0, 0
    )


def _corrupt(name: str, data: bytes, story: str, record: int, said: str = "checksum") -> OddFile:
    return OddFile(name, data, story, record, CorruptRecordError, record, record * FRAME_BYTES, said)


def _with(offset_bytes: int, piece: bytes) -> bytes:
    return GOOD[:offset_bytes] + piece + GOOD[offset_bytes + len(piece) :]


def _damaged() -> Iterator[OddFile]:
    three = 3 * FRAME_BYTES
    yield _corrupt("bit_flip_in_data", _with(three + 50, bytes([GOOD[three + 50] ^ 1])), "one bit", 3)
    yield _corrupt("bit_flip_in_length", _with(three, bytes([GOOD[three] ^ 8])), "one bit", 3)
    yield _corrupt("bit_flip_in_header_crc", _with(three + 9, bytes([GOOD[three + 9] ^ 8])), "one bit", 3)
    yield _corrupt("bit_flip_in_footer", _with(three + 215, bytes([GOOD[three + 215] ^ 8])), "one bit", 3)
    yield _corrupt("first_header_damaged", _with(8, b"\x00\x01\x02\x03"), "the first checksum", 0)
    yield _corrupt("first_block_overwritten", _with(0, bytes(range(256)) * 2), "something wrote over it", 0)
    yield _corrupt("first_block_nul", _with(0, bytes(512)), "a hole at the beginning", 0, "NUL")
    yield _corrupt("nul_tail_4096", GOOD + bytes(4096), "a block of NULs after a power cut", 10, "NUL")
    yield _corrupt("nul_tail_12", GOOD + bytes(12), "the shortest NUL header", 10, "NUL")
    yield _truncated("nul_tail_11", bytes(11), "NULs that are less than a header")
    yield _corrupt("nul_hole", _with(500, bytes(512)), "not yet written on a network file system", 2)
    yield _corrupt("sparse_hole", _with(432, bytes(1024)), "a hole that begins at a record", 2, "NUL")
    yield _corrupt("nul_gap", GOOD + bytes(100) + GOOD, "two files with a gap between them", 10, "NUL")
    yield _corrupt("nul_only", bytes(4096), "allocated and never written", 0, "NUL")
    yield _corrupt("nul_only_large", bytes(100_000), "more NULs than are looked at", 0, "NUL")
    yield _corrupt("ff_only", b"\xff" * 4096, "erased flash", 0)
    yield _corrupt("block_repeated", GOOD[:1024] + GOOD[512:], "a block written twice", 4)
    yield _corrupt("block_missing", GOOD[:512] + GOOD[1024:], "a block left out", 2)
    yield _corrupt("byte_inserted", GOOD[: three + 20] + b"!" + GOOD[three + 20 :], "one byte too many", 3)
    yield _corrupt("byte_removed", GOOD[: three + 20] + GOOD[three + 21 :], "one byte too few", 3)
    yield _corrupt("text_tail", GOOD + b"Connection reset by peer\n", "a message of curl", 10)
    yield _corrupt("compressed_tail", GOOD + gzip.compress(GOOD), "a compressed file behind a plain one", 10)
    a, b = (b"".join(frame(c * n) for _ in range(20)) for c, n in ((b"A", 300), (b"B", 301)))
    mixed = b"".join(a[i : i + 1000] + b[i : i + 1000] for i in range(0, len(b), 1000))
    yield OddFile(
        "two_appenders",
        mixed,
        "two processes appended in blocks of 1000 bytes",
        3,
        CorruptRecordError,
        3,
        948,
        records=[b"A" * 300] * 20,
    )
    unmasked = struct.pack("<QI", 5, crc32c(struct.pack("<Q", 5))) + b"hello" + bytes(4)
    yield _corrupt("unmasked_tail", GOOD + unmasked, "another writer went on", 10, "unmasked")
    for low, high in ((0x78, 0x01), (0x80, 0x03), (0x1F, 0x8B), (0x68, 0x05)):
        data = bytes([low, high]) + bytes(6) + b"\x01\x02\x03\x04" + bytes(3000)
        yield _corrupt(f"damaged_length_{low:02x}{high:02x}", data, "a damaged header like a magic number", 0)
    # A transfer in text mode; its first header has no byte that it would change.
    crlf = frame(b"a line\nand another\n") * 2
    yield OddFile(
        "crlf_in_the_data", crlf.replace(b"\n", b"\r\n"), "FTP in ASCII mode", 0, CorruptRecordError, 0, 0
    )


def _packed() -> Iterator[OddFile]:
    packed, tight = gzip.compress(GOOD), zlib.compress(GOOD)

    def cut(name: str, data: bytes, story: str, whole: int = 10) -> OddFile:
        return OddFile(name, data, story, whole, TruncatedFileError, said="ends before")

    yield cut("gzip_no_trailer", packed[:-8], "the gzip trailer is missing")
    yield cut("gzip_trailer_cut", packed[:-1], "one byte is missing")
    yield cut("zlib_no_trailer", tight[:-4], "the Adler-32 is missing")
    stored = gzip.compress(GOOD, 0)
    yield cut("gzip_half", stored[: len(stored) // 2], "the second half is missing", 4)
    yield cut("gzip_header_only", packed[:10], "a gzip header and nothing else", 0)
    yield cut("gzip_second_member_cut", packed + packed[:20], "the second member is cut", 10)
    yield OddFile(
        "zlib_second_stream_cut",
        tight + tight[:-2],
        "the second stream is cut",
        20,
        TruncatedFileError,
        records=RECORDS * 2,
    )
    yield cut("gzip_nul_1", packed + b"\x00", "one NUL, which may be the beginning of a member")
    garbage: list[tuple[str, bytes, str]] = [
        ("gzip_nul_padding", packed + bytes(512), "padding of a tape; gzip(1) forgives it, we do not"),
        ("gzip_garbage", packed + b"garbage", "other bytes behind the last member"),
        ("gzip_then_plain", packed + GOOD, "a plain file behind a compressed one"),
        ("zlib_garbage", tight + b"garbage", "other bytes behind the stream"),
        ("zlib_then_gzip", tight + packed, "two kinds of compression"),
        ("gzip_bad_crc", packed[:-8] + bytes(4) + packed[-4:], "the CRC-32 of the trailer"),
        ("gzip_bad_size", packed[:-4] + bytes(4), "the size in the trailer"),
        ("zlib_bad_adler", tight[:-4] + bytes(4), "the Adler-32"),
    ]
    for name, data, story in garbage:
        records = RECORDS * 2
        yield OddFile(name, data, story, 10, CorruptDataError, records=records, said="stream")
    raw = bytearray(stored)
    raw[15 + 3 * FRAME_BYTES + 50] ^= 1
    yield OddFile(
        "gzip_bit_flip_in_a_record",
        bytes(raw),
        "our CRC comes before gzip's",
        3,
        CorruptRecordError,
        3,
        3 * FRAME_BYTES,
        "checksum",
    )
    inside = gzip.compress(GOOD + bytes(4096))
    yield OddFile(
        "gzip_of_a_nul_tail",
        inside,
        "damage before compression",
        10,
        CorruptRecordError,
        10,
        len(GOOD),
        "NUL",
    )
    inside = zlib.compress(GOOD + header(1 << 40) + bytes(99))
    yield OddFile("zlib_of_length_2_40", inside, "a claim inside", 10, TruncatedFileError, 10, len(GOOD))
    inside = gzip.compress(GOOD + header(77)[:5])
    yield OddFile(
        "gzip_of_a_partial_header", inside, "a cut before compression", 10, TruncatedFileError, 10, len(GOOD)
    )


def _foreign(name: str, data: bytes, said: str, story: str = "another kind of file") -> OddFile:
    return OddFile(name, data, story, 0, FormatError, said=said)


def _nearly() -> Iterator[OddFile]:
    """Files that are TFRecords but for one mistake that is the same in every record."""
    for name, said, length, crc in (
        ("lengths_big_endian", "byte-swapped", ">Q", lambda raw: struct.pack("<I", mask(crc32c(raw)))),
        ("all_big_endian", "byte-swapped", ">Q", lambda raw: struct.pack(">I", mask(crc32c(raw)))),
        (
            "lengths_big_endian_2",
            "byte-swapped",
            ">Q",
            lambda raw: struct.pack("<I", mask(crc32c(raw[::-1]))),
        ),
        ("checksums_big_endian", "byte-swapped", "<Q", lambda raw: struct.pack(">I", mask(crc32c(raw)))),
        ("unmasked", "not masked", "<Q", lambda raw: struct.pack("<I", crc32c(raw))),
        ("crc32_of_zlib", "CRC-32 instead", "<Q", lambda raw: struct.pack("<I", zlib.crc32(raw))),
        (
            "crc32_of_zlib_masked",
            "CRC-32 instead",
            "<Q",
            lambda raw: struct.pack("<I", mask(zlib.crc32(raw))),
        ),
    ):
        raw = struct.pack(length, 200)
        yield _foreign(name, (raw + crc(raw) + RECORDS[0] + crc(RECORDS[0])) * 3, said, "a writer's mistake")
    ten = frame(b"0123456789") * 50
    yield _foreign("crlf_in_the_header", ten.replace(b"\n", b"\r\n"), "line ends", "FTP in ASCII mode")
    yield _foreign("utf8_bom", b"\xef\xbb\xbf" + GOOD, "byte order mark", "an editor saved it")
    yield _foreign(
        "latin1_as_utf8", GOOD.decode("latin-1").encode(), "Latin-1", "a tool read and wrote it as text"
    )
    lost = GOOD.decode("utf-8", "replace").encode()
    yield _foreign("utf8_replaced", lost, "U+FFFD", "a tool replaced all that was no text")
    yield _foreign("base64", base64.b64encode(GOOD), "base64", "an attachment")
    yield _foreign("base64_lines", base64.encodebytes(GOOD), "base64", "an attachment in lines")
    yield _foreign("gzip_twice", gzip.compress(gzip.compress(GOOD)), "inside is a gzip-compressed TFRecord")
    yield _foreign("gzip_in_zlib", zlib.compress(gzip.compress(GOOD)), "inside is a gzip-compressed TFRecord")
    deep = GOOD
    for _ in range(30):
        deep = gzip.compress(deep)
    yield _foreign("gzip_30_times", deep, "still more compressed data", "each layer costs the reader time")
    dictionary = zlib.compressobj(zdict=GOOD[:200])
    data = dictionary.compress(GOOD) + dictionary.flush()
    yield _foreign("zlib_with_dictionary", data, "preset dictionary", "cannot be read without it")


def _other_formats() -> Iterator[OddFile]:
    zipped, npz, npy, tar = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("a.txt", "a")
    np.savez(npz, a=np.zeros(3))
    np.save(npy, np.zeros(3))
    with tarfile.open(fileobj=tar, mode="w") as bundle:
        for name in ("0.png", "0.cls"):
            bundle.addfile(tarfile.TarInfo(name))
    tensors = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    leveled = b"\x01" + b"\x00" * 8 + b"\x01\x00\x00\x00" + b"\x01\x03key\x05value"
    riegeli = bytes.fromhex(
        "83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a90000000000000000e19f13c0e9b1c37273"
    )
    formats: list[tuple[str, bytes, str]] = [
        ("zip", zipped.getvalue(), "zip archive"),
        ("npz", npz.getvalue(), "npz"),
        ("npy", npy.getvalue(), "NumPy"),
        ("tar", tar.getvalue(), "tar archive"),
        ("tar_gz", gzip.compress(tar.getvalue()), "inside is a tar archive"),
        ("zip_empty", b"PK\x05\x06" + bytes(18), "zip archive"),
        ("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(2000), "HDF5"),
        ("hdf5_user_block", b"user block".ljust(512) + b"\x89HDF\r\n\x1a\n" + bytes(500), "HDF5"),
        ("parquet", b"PAR1\x15\x04" + bytes(100) + b"PAR1", "Parquet"),
        ("arrow", b"ARROW1\x00\x00" + bytes(100), "Arrow file"),
        ("arrow_stream", b"\xff\xff\xff\xff\x10\x00\x00\x00" + bytes(100), "Arrow IPC stream"[:5]),
        ("feather_1", b"FEA1" + bytes(100), "Feather"),
        ("orc", b"ORC\x08\x03" + bytes(100), "ORC"),
        ("avro", b"Obj\x01\x04\x14avro.codec", "Avro"),
        ("safetensors", struct.pack("<Q", len(tensors)) + tensors + bytes(4), "safetensors"),
        ("mxnet", b"\x0a\x23\xd7\xce\x08\x00\x00\x00" + bytes(100), "MXNet"),
        ("riegeli", riegeli + bytes(15) + b"\x01\x02" * 99, "Riegeli"),
        ("array_record", riegeli + bytes(131072 - len(riegeli)), "ArrayRecord"),
        ("level_db", struct.pack("<IH", mask(crc32c(leveled)), len(leveled) - 1) + leveled, "LevelDB"),
        ("lmdb", bytes(16) + b"\xde\xc0\xef\xbe" + bytes(100), "LMDB"),
        ("sqlite", b"SQLite format 3\x00" + bytes(100), "SQLite"),
        ("sequence_file", b"SEQ\x06\x19org.apache.hadoop.io.Text", "SequenceFile"),
        ("pickle_2", b"\x80\x02}q\x00.", "pickle"),
        ("pickle_4", b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00}\x94.", "pickle"),
        ("bzip2", b"BZh91AY&SY" + bytes(100), "bzip2"),
        ("xz", b"\xfd7zXZ\x00" + bytes(100), "xz"),
        ("lz4", b"\x04\x22\x4d\x18" + bytes(100), "lz4"),
        ("seven_zip", b"7z\xbc\xaf\x27\x1c" + bytes(100), "7z"),
        ("png", b"\x89PNG\r\n\x1a\n" + bytes(100), "PNG"),
        ("jpeg", b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(100), "JPEG"),
        ("webp", b"RIFF\x24\x00\x00\x00WEBPVP8 ", "WebP"),
        ("mp4", b"\x00\x00\x00\x18ftypisom" + bytes(100), "MP4"),
        ("elf", b"\x7fELF\x02\x01\x01" + bytes(100), "program"),
        ("gguf", b"GGUF\x03\x00\x00\x00" + bytes(100), "GGUF"),
    ]
    for name, data, said in formats:
        yield _foreign(name, data, said)


def _texts() -> Iterator[OddFile]:
    lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 123456789\n"
    denied = b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code><RequestId>1</RequestId></Error>'
    page = b"<!DOCTYPE html><html><head><title>403 Forbidden</title></head></html>\n"
    texts: list[tuple[str, bytes, str]] = [
        ("git_lfs_pointer", lfs, "git lfs pull"),
        ("git_annex_pointer", b"/annex/objects/SHA256E-s1--0.tfrecord\n", "git annex get"),
        ("git_annex_link", b"../.git/annex/objects/x/y/SHA256E-s1--0/SHA256E-s1--0\n", "git annex get"),
        ("dvc_pointer", b"outs:\n- md5: 0123456789abcdef\n  path: train.tfrecord\n", "dvc pull"),
        ("html", page, "HTML"),
        ("html_gzip", gzip.compress(page), "inside is an HTML page"),
        ("html_bom", b"\xef\xbb\xbf" + page, "HTML"),
        ("html_utf16", page.decode().encode("utf-16"), "HTML"),
        ("s3_error", denied, "AccessDenied"),
        ("xml_error_bare", b"<Error><Code>NoSuchKey</Code></Error>", "NoSuchKey"),
        ("http_headers", b"HTTP/1.1 200 OK\r\nContent-Length: 2160\r\n\r\n" + GOOD, "web server"),
        ("gcs_error", b'{"error": {"code": 401, "message": "Login Required."}}', "error answer"),
        ("json", b'{"a": 1}\n', "JSON"),
        ("json_list", b"[1, 2, 3, 4, 5, 6]\n", "JSON"),
        ("csv", b"label,path\n3,a.png\n", "plain text that begins 'label,path'"),
        ("csv_bom", b"\xef\xbb\xbflabel,path\n3,a.png\n", "plain text that begins 'label,path'"),
        ("csv_utf16", "label,path\n3,a.png\n".encode("utf-16"), "plain text that begins 'label,path'"),
        ("one_word", b"hello", "plain text"),
        ("blank", b" \n\n \n", "blank"),
        ("script", b"#!/bin/sh\nexit 1\n", "script"),
    ]
    for name, data, said in texts:
        yield _foreign(name, data, said)


def _deflate(data: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush()


def _gzip(data: bytes, flags: int, extra: bytes = b"") -> bytes:
    head = struct.pack("<BBBBIBB", 0x1F, 0x8B, 8, flags, 0, 0, 255) + extra
    if flags & 2:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    return head + _deflate(data, wbits=-15) + struct.pack("<II", zlib.crc32(data), len(data))
