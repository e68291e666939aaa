"""Tables: CSV through the standard library, Parquet and Arrow through pyarrow."""

from __future__ import annotations

import contextlib
import csv
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.errors import FormatError, SchemaError, ShardkeepError
from shardkeep.files.durable import reading_from
from shardkeep.jobs.pack_sources.source import Item, PackSource
from shardkeep.progress import Progress

__all__ = ["ArrowTable", "CsvTable"]

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?inf|nan", re.ASCII | re.IGNORECASE)
_TYPES = ("int64", "float32", "bytes")
_BATCH_ROWS = 1024


def _checked_dtypes(dtypes: Mapping[str, str] | None, columns: Sequence[str], path: str) -> dict[str, str]:
    for name, kind in (dtypes or {}).items():
        if kind not in _TYPES:
            raise SchemaError(
                f"{path}: column {name!r}: {kind!r} is not one of {', '.join(_TYPES)}", path=path
            )
        if name not in columns:
            raise SchemaError(f"{path}: no column {name!r}; it has {', '.join(columns)}", path=path)
    return dict(dtypes or {})


_TICK_LINES = 1000


class CsvTable(PackSource):
    """CSV files in UTF-8 with a header; the delimiter is a comma, or a tab if the name ends in ``.tsv``.

    Parameters
    ----------
    paths : sequence of str
        Files with equal headers.
    dtypes : mapping of str to str, optional
        Column to "int64", "float32" or "bytes", instead of the inferred type.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` while the types are inferred.

    Notes
    -----
    The type of a column is inferred from all of its cells: "int64" if each is a decimal integer of 64 bits
    without leading zeros, otherwise "float32" if each is a number, otherwise "bytes" (UTF-8). A zip code or
    an identifier of 20 digits therefore stays text. A record has no feature for an empty cell of a column of
    numbers; an empty cell of text is an empty string.
    """

    kind = "csv"

    def __init__(
        self,
        paths: Sequence[str],
        dtypes: Mapping[str, str] | None = None,
        *,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(paths)
        self._scan: Progress | None = None
        self.columns = self._header(paths[0])
        for path in paths[1:]:
            if (other := self._header(path)) != self.columns:
                raise SchemaError(
                    f"{path}: its columns are {', '.join(other)}; those of {paths[0]} are"
                    f" {', '.join(self.columns)}",
                    path=path,
                )
        given = _checked_dtypes(dtypes, self.columns, paths[0])
        self.total_bytes = sum(os.path.getsize(path) for path in paths)
        self.done_bytes, self._scan = 0, progress
        self.features = self._inferred(given) | given
        self.done_bytes, self._scan = 0, None

    def __iter__(self) -> Iterator[Item]:
        kinds = [self.features[name] for name in self.columns]
        for path, line, row in self._rows():
            if len(row) != len(self.columns):
                yield _uneven(path, line, row, self.columns)
                continue
            try:
                yield {
                    name: value
                    for name, kind, cell in zip(self.columns, kinds, row, strict=True)
                    if (value := _cell(cell, kind)) is not None
                }
            except ValueError as error:
                yield SchemaError(f"{path}: line {line}: {error}", path=path)

    def _inferred(self, given: Mapping[str, str]) -> dict[str, str]:
        levels = dict.fromkeys((name for name in self.columns if name not in given), 0)
        seen = dict.fromkeys(levels, False)
        places = [(place, name) for place, name in enumerate(self.columns) if name in levels]
        for _, _, row in self._rows():
            if len(row) != len(self.columns):
                continue  # `__iter__` yields the error
            for place, name in places:
                cell = row[place]
                if levels[name] < 2 and cell:
                    seen[name] = True
                    levels[name] = max(levels[name], _level(cell))
        # A column without any value has no type that a later file could contradict.
        return {name: _TYPES[level] if seen[name] or level else "bytes" for name, level in levels.items()}

    def _header(self, path: str) -> list[str]:
        for _, _, row in self._rows_of(path):
            repeated = {name for name in row if row.count(name) > 1}
            if repeated or not all(row):
                what = f"{sorted(repeated)[0]!r} twice" if repeated else "a column without a name"
                raise SchemaError(
                    f"{path}: the header (the first line) has {what}; name each column once", path=path
                )
            return row
        raise FormatError(f"{path}: an empty file; a CSV file begins with a header", path=path)

    def _rows(self) -> Iterator[tuple[str, int, list[str]]]:
        for path in self.paths:
            rows = self._rows_of(path)
            next(rows)
            yield from rows

    def _rows_of(self, path: str) -> Iterator[tuple[str, int, list[str]]]:
        delimiter = "\t" if path.lower().endswith(".tsv") else ","
        with open(path, "rb") as file, reading_from(path):
            reader = csv.reader(self._lines(file, path), delimiter=delimiter, strict=True)
            while True:
                line = reader.line_num + 1
                try:
                    row = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    raise FormatError(
                        f"{path}: line {reader.line_num}: not CSV ({error})", path=path
                    ) from None
                if row:
                    yield path, line, row

    def _lines(self, file: Any, path: str) -> Iterator[str]:
        for number, line in enumerate(file, 1):
            self.done_bytes += len(line)
            if self._scan is not None and number % _TICK_LINES == 0:
                self._scan(self.done_bytes, self.total_bytes)
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise FormatError(
                    f"{path}: line {number}: not UTF-8 ({error.reason} at its byte {error.start})", path=path
                ) from None


def _level(cell: str) -> int:
    if _INTEGER.fullmatch(cell) and -(2**63) <= int(cell) < 2**63:
        return 0
    if _INTEGER.fullmatch(cell) or not _FLOAT.fullmatch(cell):
        return 2  # an integer of more than 64 bits is an identifier and must not be rounded
    return 2 if re.match(r"[+-]?0\d", cell) else 1


def _cell(cell: str, kind: str) -> Any:
    if kind == "bytes":
        return cell.encode()
    if not cell:
        return None
    if kind == "int64":
        value = int(cell)
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{cell} does not fit into 64 bits")
        return value
    return float(cell)


def _uneven(path: str, line: int, row: list[str], columns: list[str]) -> ShardkeepError:
    return SchemaError(
        f"{path}: line {line} has {len(row)} cells, the header {len(columns)}; quote a cell with the"
        " delimiter",
        path=path,
    )


class ArrowTable(PackSource):
    """Parquet files, or Arrow files and streams, through pyarrow.

    Parameters
    ----------
    paths : sequence of str
        Files with equal columns.
    kind : {"parquet", "arrow"}

    Notes
    -----
    Integers and booleans become int64, floats float32, strings and binary values bytes; a list becomes a
    feature with several values. A record has no feature for a null.
    """

    def __init__(self, paths: Sequence[str], kind: str) -> None:
        super().__init__(paths)
        self.kind = kind
        use = f"{paths[0]}: reading {kind} files"
        self._arrow = import_extra("pyarrow", use, paths[0])
        import_extra("pyarrow.parquet", use, paths[0])
        self.total_bytes = sum(os.path.getsize(path) for path in paths)
        schema = None
        for path in paths:
            with self._opened(path) as (found, _, _):
                if schema is None:
                    schema = found
                elif not found.equals(schema):
                    raise SchemaError(f"{path}: its columns differ from those of {paths[0]}", path=path)
        for field in schema or ():
            self.features[field.name] = self._feature(field.name, field.type)

    def __iter__(self) -> Iterator[Item]:
        read_bytes = 0
        for path in self.paths:
            size = os.path.getsize(path)
            row = 0
            with self._opened(path) as (_, batches, total_rows):
                for batch in batches:
                    for features in self._rows(path, batch, row):
                        yield features
                        row += 1
                    self.done_bytes = read_bytes + (size * row // total_rows if total_rows else 0)
            read_bytes += size
            self.done_bytes = read_bytes

    def _rows(self, path: str, batch: Any, first: int) -> Iterator[Item]:
        columns = {name: batch.column(place).to_pylist() for place, name in enumerate(batch.schema.names)}
        for number in range(batch.num_rows):
            features: dict[str, Any] = {}
            for name, values in columns.items():
                value = values[number]
                if value is None:
                    continue
                if isinstance(value, list):
                    if None in value:
                        yield SchemaError(
                            f"{path}: row {first + number}: column {name!r} has a null in a list; replace it",
                            path=path,
                        )
                        break
                    if not value or self.features[name] != "bytes":
                        kind = {"bytes": "S1"}.get(self.features[name], self.features[name])
                        value = np.array(value, kind)
                elif self.features[name] == "int64":
                    value = int(value)
                features[name] = value
            else:
                yield features

    def _feature(self, name: str, kind: Any) -> str:
        types = self._arrow.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            kind = kind.value_type
        if types.is_integer(kind) or types.is_boolean(kind):
            return "int64"
        if types.is_floating(kind):
            if kind.bit_width == 64:
                self.notes.append(
                    f"column {name!r}: float64 is stored as float32, the float type of an Example"
                )
            return "float32"
        if (
            types.is_string(kind)
            or types.is_large_string(kind)
            or types.is_binary(kind)
            or types.is_large_binary(kind)
            or types.is_fixed_size_binary(kind)
        ):
            return "bytes"
        raise SchemaError(
            f"{self.paths[0]}: column {name!r} is {kind}; an Example holds integers, floats and bytes: cast"
            " or drop it",
            path=self.paths[0],
        )

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[tuple[Any, Iterator[Any], int]]:
        """Open a file; yield its schema, its batches and the number of its rows, 0 if that is not known."""
        arrow = self._arrow
        with open(path, "rb") as file:
            try:
                if self.kind == "parquet":
                    table = arrow.parquet.ParquetFile(file)
                    yield table.schema_arrow, table.iter_batches(_BATCH_ROWS), table.metadata.num_rows
                elif file.peek(6)[:6] == b"ARROW1":
                    reader = arrow.ipc.open_file(file)
                    batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
                    yield reader.schema, batches, 0
                else:
                    stream = arrow.ipc.open_stream(file)
                    yield stream.schema, iter(stream), 0
            except (arrow.ArrowInvalid, OSError) as error:
                reason = " ".join(str(error).split())
                message = f"{path}: pyarrow cannot read it as {self.kind} ({reason})"
                raise FormatError(message, path=path) from None
