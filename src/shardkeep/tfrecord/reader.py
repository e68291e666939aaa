"""Reading a TFRecord file: in order, or any record by its number."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import CorruptRecordError, FormatError, PlanError
from shardkeep.files.kind import require_kind
from shardkeep.tfrecord.index import load_index

__all__ = ["Reader", "compression_name"]


class Reader:
    """The records of one file.

    Parameters
    ----------
    path : str or os.PathLike
        A TFRecord file.
    compression : {"auto", None, "gzip", "zlib"}
        "auto" tells from the content, whatever the name says. TensorFlow's "GZIP", "ZLIB" and "" are
        understood.
    verify : bool
        Check the CRC of every payload. The CRC of every length is checked in any case.

    Raises
    ------
    NotFoundError
        There is no such file.
    FormatError
        It is another kind of file; the message says which. Also for random access into a compressed
        file, which has none.
    CorruptRecordError
        A checksum does not match.
    TruncatedFileError
        The file ends inside a record or a compressed stream. TensorFlow reads some such files as a
        clean end; here it is always an error.

    Notes
    -----
    Iteration gives every record as `bytes` of its own, in file order, with constant memory. The file is
    read by offset only, so any number of readers, threads and processes may read it at once, and a
    reader may cross `fork` or `pickle`; nothing is shared that could move. Descriptors come out of the
    process-wide budget (`shardkeep.files.budget`).

    ``len``, ``r[i]``, slices and `read_many` need to know where the records start (8 bytes a record): from
    the index file ``<path>.skidx`` if there is one that fits, otherwise from one scan of the headers, after
    which such a file is left there if the shard has a megabyte or more (see `build_index`). Of a file that
    grew since, only the new part is scanned.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import Writer
    >>> path = os.path.join(tempfile.mkdtemp(), "three.tfrecord")
    >>> with Writer(path) as w:
    ...     for record in (b"a", b"bb", b""):
    ...         w.write(record)
    >>> r = Reader(path)
    >>> list(r), len(r), r[-2], r[:2], r.read_many([2, 0, 0])
    ([b'a', b'bb', b''], 3, b'bb', [b'a', b'bb'], [b'', b'a', b'a'])
    """

    def __init__(
        self, path: str | os.PathLike[str], *, compression: str | None = "auto", verify: bool = True
    ) -> None:
        self.path = os.fspath(path)
        self.verify = bool(verify)
        self._compression: Any = "auto" if compression == "auto" else compression_name(compression)
        self._found: tuple[tuple[int, ...], _core.RecordFile | None, int] | None = None
        # Opening tells at once about a file that is missing or of another kind.
        kind = require_kind(self.path, "tfrecord", "empty", "other")
        if kind.name == "other" and self._compression == "auto" and not _may_be_damaged(kind.described):
            require_kind(self.path, "tfrecord", "empty", found=kind)

    @property
    def compression(self) -> str | None:
        """How the file is compressed: None, "gzip" or "zlib"."""
        name: str | None = self._compression
        return _core.sniff_compression(self.path) if name == "auto" else name

    def __iter__(self) -> Iterator[bytes]:
        records = _core.RecordIterator(self.path, compression=self._compression, verify=self.verify)
        return self._guarded(records)

    def __len__(self) -> int:
        return self._indexed()[1]

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return self.read_many(range(len(self))[index])
        return self.read_many([operator.index(index)])[0]

    def read_many(self, indices: Iterable[int]) -> list[bytes]:
        """Return the records with these numbers, in this order.

        Parameters
        ----------
        indices : iterable of int
            Any order, repetitions allowed; negative numbers count from the end.

        Raises
        ------
        IndexError
            A number that the file does not have.
        FormatError
            The file is compressed as a whole, so that its records have no place to jump to.
        """
        file, count = self._indexed()
        if file is None:
            raise FormatError(
                f"{self.path}: a {self.compression}-compressed file has no random access; read it in order,"
                " or write it again without compression",
                path=self.path,
            )
        wanted = np.fromiter(indices, dtype=np.int64) if not isinstance(indices, np.ndarray) else indices
        numbers = _absolute(wanted, count, self.path)
        try:
            return file.read_many(numbers)
        except CorruptRecordError as error:
            raise explained(error) from None

    def __repr__(self) -> str:
        return f"<Reader {self.path!r}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_found": None}

    def _guarded(self, records: Iterator[bytes]) -> Iterator[bytes]:
        try:
            yield from records
        except CorruptRecordError as error:
            raise explained(error) from None

    def _indexed(self) -> tuple[_core.RecordFile | None, int]:
        """Return the file for random access (None if compressed) and the number of records."""
        stat = os.stat(self.path)
        identity = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if self._found is None or self._found[0] != identity:
            if self.compression is None:
                index = load_index(self.path)
                file = _core.RecordFile(self.path, index.starts, verify=self.verify)
                self._found = (identity, file, index.records)
            else:
                self._found = (identity, None, sum(1 for _ in self))
        return self._found[1], self._found[2]


def compression_name(compression: str | None) -> Any:
    """Return None, "gzip" or "zlib" for any of the names in use.

    Raises
    ------
    PlanError
        For another name.
    """
    name = (compression or "").lower()
    if name in ("", "none"):
        return None
    if name not in ("gzip", "zlib"):
        raise PlanError(f'compression={compression!r} is not known: use None, "gzip" or "zlib"')
    return name


def explained(error: CorruptRecordError) -> Exception:
    """Tell what a file is whose very first header is wrong; otherwise return the error itself."""
    if error.record == 0 and error.offset_bytes == 0 and error.path is not None:
        try:
            kind = require_kind(error.path, "tfrecord", "other")
            if kind.name == "other" and not _may_be_damaged(kind.described):
                require_kind(error.path, "tfrecord", found=kind)
        except FormatError as better:
            return better
        except OSError:
            pass
    return error


def _may_be_damaged(described: str) -> bool:
    # What has no name of its own may be a TFRecord whose beginning is damaged: its records tell more.
    return described.startswith(("binary data", "zero bytes", "damaged"))


def _absolute(wanted: npt.NDArray[Any], count: int, path: str) -> npt.NDArray[np.uint64]:
    if wanted.dtype.kind not in "iu":
        raise IndexError(f"{path}: record numbers are integers, not {wanted.dtype}")
    bad = (wanted < -count) | (wanted >= count)
    if bad.any():
        raise IndexError(f"{path}: there is no record {int(wanted[bad][0])}: the file has {count}")
    return np.where(wanted < 0, wanted + count, wanted).astype(np.uint64)
