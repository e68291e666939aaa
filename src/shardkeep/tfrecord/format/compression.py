"""Names of the compressions of whole files."""

from __future__ import annotations

from typing import Any, Literal

from shardkeep.errors import PlanError

__all__ = ["WrittenCompression", "compression_name", "written_compression"]

WrittenCompression = Literal["gzip", "zlib"]


def compression_name(compression: str | None) -> Any:
    """Return None, "gzip", "zlib" or "zstd" for any accepted name.

    Raises
    ------
    PlanError
        The name is not known.
    """
    name = compression.lower() if isinstance(compression, str) else compression
    if name in (None, "", "none"):
        return None
    if name not in ("gzip", "zlib", "zstd"):
        raise PlanError(f'compression={compression!r} is not known: use None, "gzip", "zlib" or "zstd"')
    return name


def written_compression(compression: str | None) -> Any:
    """Return None, "gzip" or "zlib" for the name of a compression that can be written.

    Raises
    ------
    PlanError
        The name is not known, or is that of zstd, which can only be read.
    """
    name = compression_name(compression)
    if name == "zstd":
        raise PlanError('compression="zstd" is read, not written: TensorFlow cannot read it; use "gzip"')
    return name
