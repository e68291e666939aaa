"""Kind of a file whose content is not that of a TFRecord file."""

from __future__ import annotations

from shardkeep.errors import CorruptDataError, FormatError
from shardkeep.files.kinds.kind import FileKind, require_kind

__all__ = ["is_compressed", "may_hold_records", "with_file_kind"]


def with_file_kind(error: CorruptDataError) -> Exception:
    """Return an error with the kind of a file whose first header is wrong; otherwise the error itself."""
    if error.record == 0 and error.offset_bytes == 0 and error.path is not None:
        try:
            kind = require_kind(error.path, "tfrecord", "other")
            if kind.name == "other" and not may_hold_records(kind):
                require_kind(error.path, "tfrecord", found=kind)
        except FormatError as better:
            return better
        except OSError:
            pass
    return error


def may_hold_records(kind: FileKind) -> bool:
    """Return True unless the file is known to be no TFRecord file.

    The content of a zstd file is known only after its decompression.
    """
    return kind.may_be_damaged_records or kind.described.startswith("zstd-compressed")


def is_compressed(kind: FileKind) -> bool:
    """Return True for a compressed TFRecord file, also a damaged one."""
    return kind.compression is not None or kind.described.startswith(("damaged gzip", "damaged zlib", "zstd"))
