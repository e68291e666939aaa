"""Filters of a dataset: their parameters, and whether this HDF5 has them.

HDF5 compresses each chunk itself. Compressing chunks with ``zlib`` before they are written is not faster
(`docs/design/hdf5-worker-files.md`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

import h5py
import numpy as np

from shardkeep._extras import import_extra
from shardkeep.errors import MissingExtraError, PlanError

__all__ = [
    "Compression",
    "FilterSpec",
    "compression_filters",
    "filter_codes",
    "missing_filter",
    "offer_filters",
    "require_filter",
    "require_filters",
]

Compression = Literal["gzip", "lzf", "zstd", "blosc2"]
FilterSpec = tuple[int, int, tuple[int, ...]]
"""Code, flags and parameters, as ``H5Pset_filter`` takes them."""

# (lowest, highest, default) level; lzf has none.
_LEVELS = {"gzip": (0, 9, 4), "zstd": (1, 22, 3), "blosc2": (0, 9, 5)}
_OF_PLUGIN = {
    307: "bzip2",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32018: "fcidecomp",
    32024: "sz3",
    32026: "blosc2",
    32028: "sperr",
    32033: "htj2k",
}
_NAMES = {4: "szip", 305: "lzo", **_OF_PLUGIN}
_FIRST_OF_PLUGINS = 256  # H5Z_FILTER_RESERVED; lower ones are part of HDF5
# A chunk that does not shrink is stored uncompressed, and its filter mask marks it.
_OPTIONAL = h5py.h5z.FLAG_OPTIONAL


def compression_filters(
    compression: Compression | None,
    level: int | None,
    shuffle: bool | None,
    dtype: np.dtype[Any],
) -> tuple[FilterSpec, ...]:
    """Return the filters of a dataset of fixed-size values.

    Parameters
    ----------
    compression : {"gzip", "lzf", "zstd", "blosc2"} or None
    level : int or None
        By default 4 of gzip, 3 of zstd, 5 of blosc2 (whose codec is zstd).
    shuffle : bool or None
        Whether the first bytes of all values are stored first, then all second bytes, and so on. By default
        for numbers of more than one byte, which compress better so.
    dtype : dtype

    Raises
    ------
    PlanError
        The compression or level is not known, or a level or shuffle has no compression.
    MissingExtraError
        zstd and blosc2 need the package hdf5plugin, also to be read.
    """
    if compression is None:
        if level is not None or shuffle:
            raise PlanError("a level or shuffle without compression has no effect: pass compression= too")
        return ()
    level = _check_level(compression, level)
    if shuffle is None:
        shuffle = dtype.kind in "iufc" and dtype.itemsize > 1
    if compression == "blosc2":
        plugin = _plugin(compression)
        chosen = plugin.Blosc2(cname="zstd", clevel=level, filters=plugin.Blosc2.SHUFFLE if shuffle else 0)
        return ((chosen.filter_id, _OPTIONAL, tuple(chosen.filter_options)),)
    filters: list[FilterSpec] = []
    if shuffle:
        filters.append((h5py.h5z.FILTER_SHUFFLE, _OPTIONAL, ()))
    if compression == "zstd":
        chosen = _plugin(compression).Zstd(clevel=level)
        filters.append((chosen.filter_id, _OPTIONAL, tuple(chosen.filter_options)))
    elif compression == "gzip":
        filters.append((h5py.h5z.FILTER_DEFLATE, _OPTIONAL, (level,)))
    else:
        filters.append((h5py.h5z.FILTER_LZF, _OPTIONAL, ()))
    return tuple(filters)


def offer_filters(codes: Iterable[int]) -> None:
    """Register filters with HDF5 where their plugin is installed; no error for others."""
    for code in codes:
        if code >= _FIRST_OF_PLUGINS:
            missing_filter(code)


def filter_codes(properties: h5py.h5p.PropDCID) -> list[int]:
    """Return the numbers of the filters of a dataset."""
    return [int(properties.get_filter(position)[0]) for position in range(properties.get_nfilters())]


def require_filters(dataset: h5py.Dataset) -> None:
    """Register the filters of a dataset, before its rows are read or written.

    Raises
    ------
    MissingExtraError
        HDF5 has one of them only with the package hdf5plugin, or not at all.
    """
    properties = dataset.id.get_create_plist()
    for position in range(properties.get_nfilters()):
        code, _, _, name = properties.get_filter(position)
        if not h5py.h5z.filter_avail(code):
            path = os.fsdecode(dataset.file.filename)
            require_filter(str(dataset.name), code, name.decode(errors="replace"), path=path)


def require_filter(dataset: str, code: int, label: str = "", *, path: str | None = None) -> None:
    """Register one filter, as `require_filters`; the other parameters are for the error."""
    error = missing_filter(code, label, dataset, path)
    if error is not None:
        raise error


def missing_filter(
    code: int, label: str = "", dataset: str = "", path: str | None = None
) -> MissingExtraError | None:
    """Register one filter with HDF5; return the error of `require_filters` if HDF5 does not have it."""
    if h5py.h5z.filter_avail(code):
        return None
    label = _NAMES.get(code) or label or f"number {code}"
    of = f"dataset {dataset!r}" + ("" if path is None else f" of {path!r}")
    if code >= _FIRST_OF_PLUGINS:
        try:
            plugin = _plugin(label, of, path)
        except MissingExtraError as error:
            if code in _OF_PLUGIN:
                return error
        else:
            if h5py.h5z.filter_avail(code):
                return None
            if code in _OF_PLUGIN:
                message = f"the HDF5 filter {label!r} of {of} is not in hdf5plugin {plugin.version}"
                return MissingExtraError(f"{message}: pip install --upgrade hdf5plugin", path=path)
    advice = "install its plugin, and set HDF5_PLUGIN_PATH to the folder of that"
    if code < _FIRST_OF_PLUGINS:
        advice = "use a build of h5py and HDF5 that has it"
    message = f"{of} is compressed by the HDF5 filter {label!r} (number {code}), which is not installed"
    return MissingExtraError(f"{message}: {advice}", path=path)


def _check_level(compression: str, level: int | None) -> int:
    if compression == "lzf":
        if level is not None:
            raise PlanError(f"lzf has no levels, not even compression_level={level!r}: leave it out")
        return 0
    if not isinstance(compression, str) or compression not in _LEVELS:
        names = ", ".join(map(repr, ("lzf", *_LEVELS)))
        raise PlanError(f"compression={compression!r} is not known: use None, {names}")
    lowest, highest, usual = _LEVELS[compression]
    if level is None:
        return usual
    if isinstance(level, bool) or not isinstance(level, int) or not lowest <= level <= highest:
        message = f"compression_level={level!r} is not a level of {compression}"
        raise PlanError(f"{message}: use a whole number from {lowest} to {highest}")
    return level


def _plugin(filter_name: str, of: str = "", path: str | None = None) -> Any:
    # The import registers its filters with HDF5.
    return import_extra("hdf5plugin", f"the HDF5 filter {filter_name!r}{of and f' of {of}'}", path)
