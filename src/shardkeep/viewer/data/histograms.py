"""The view of the distributions in a TFRecord file: sizes of records, values and lengths of features.

A few hundred records, spread evenly over the part of the file whose records are known, are read.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardkeep._core import record_content
from shardkeep.errors import NotFoundError, ShardkeepError, one_line
from shardkeep.tfrecord.example.example import decode_example
from shardkeep.tfrecord.format.frame import OVERHEAD_BYTES
from shardkeep.viewer.data.features import is_text
from shardkeep.viewer.data.record_file import BUDGET_S, RecordFile, open_records
from shardkeep.viewer.data.records import has_records
from shardkeep.viewer.kept import Version, version_of
from shardkeep.viewer.view import Answer, Json, Page, View, Visit

__all__ = ["DISTRIBUTIONS"]

_RECORDS = 500
_SIZES = 1_000_000
_VALUES = 200_000
_FEATURES = 40
_BINS = 40
_COMMON = 10


@dataclass
class _Column:
    """Values, lengths and most common texts of a feature in the sample."""

    values: list[NDArray[Any]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    bytes_lengths: list[int] = field(default_factory=list)
    texts: Counter[str] = field(default_factory=Counter)
    kept: int = 0

    def add(self, values: Any) -> None:
        self.lengths.append(0 if values is None else len(values))
        if isinstance(values, list):
            self.bytes_lengths += [len(one) for one in values[:_VALUES]]
            self.texts.update(one.decode() for one in values[:100] if len(one) <= 60 and is_text(one))
        elif values is not None and self.kept < _VALUES:
            part = values[: _VALUES - self.kept].copy()
            self.values.append(part)
            self.kept += len(part)


@dataclass(frozen=True)
class _Sample:
    records: int
    known: int
    columns: dict[str, _Column]


@dataclass(frozen=True)
class _Chart:
    of: str
    title: str
    name: str


def _show(visit: Visit) -> Answer:
    file = open_records(visit.location.path)
    file.scan(1 << 62)
    if visit.part == "chart":
        return Json(_chart(visit, file))
    sample = _sampled(version_of(visit.location.path), file.known)
    charts = [_Chart("sizes", "Sizes of the records", "")] if file.known else []
    common = {}
    for name, column in list(sample.columns.items())[:_FEATURES]:
        label = one_line(name)
        if len(set(column.lengths)) > 1:
            charts.append(_Chart("lengths", f"{label}: number of values", name))
        if column.values:
            charts.append(_Chart("values", f"{label}: values", name))
        if len(set(column.bytes_lengths)) > 1:
            charts.append(_Chart("bytes", f"{label}: bytes of a value", name))
        if column.texts:
            common[label] = [(one_line(text), count) for text, count in column.texts.most_common(_COMMON)]
    more = max(0, len(sample.columns) - _FEATURES)
    return Page(
        "histograms.html",
        {"file": file, "sample": sample, "charts": charts, "common": common, "more_features": more},
    )


@functools.lru_cache(maxsize=8)
def _sampled(version: Version, known: int) -> _Sample:
    file = open_records(version.path)
    if file.compression is not None:
        numbers = list(range(_RECORDS))
    else:
        count = min(known, _RECORDS)
        numbers = [i * known // count for i in range(count)]
    # In an order in which each part is spread evenly too, since the time may end.
    numbers = [number for first in range(16) for number in numbers[first::16]]
    columns: dict[str, _Column] = {}
    end_s, read = time.monotonic() + BUDGET_S, 0
    for first in range(0, len(numbers), 16):
        for record in file.read(numbers[first : first + 16] if file.compression is None else numbers):
            read += 1
            if record.data is not None and record_content(record.data) == "tf.train.Example":
                try:
                    features = decode_example(record.data)
                except ShardkeepError:
                    continue
                for name, values in features.items():
                    columns.setdefault(name, _Column()).add(values)
        if time.monotonic() > end_s or file.compression is not None:
            break
    return _Sample(read, known, dict(sorted(columns.items())))


def _chart(visit: Visit, file: RecordFile) -> dict[str, Any]:
    of = visit.query.choice("of", ["sizes", "lengths", "values", "bytes"])
    if of == "sizes":
        return _bars(_sizes(file), "bytes")
    sample = _sampled(version_of(visit.location.path), file.known)
    column = sample.columns.get(visit.query.text("feature"))
    if column is None:
        raise NotFoundError("the records have no such feature")
    if of == "values":
        return _bars(np.concatenate(column.values) if column.values else np.zeros(0), "value")
    return _bars(
        np.array(column.lengths if of == "lengths" else column.bytes_lengths),
        "values" if of == "lengths" else "bytes",
    )


def _sizes(file: RecordFile) -> NDArray[np.int64]:
    sizes = file.sample_sizes(_SIZES)
    return sizes.astype(np.int64) - OVERHEAD_BYTES


def _bars(values: NDArray[Any], label: str) -> dict[str, Any]:
    values = values[np.isfinite(values)]
    if not values.size:
        return {"x": [], "series": [], "empty": "There are no finite values."}
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind == "i" and high - low < _BINS:
        edges = np.arange(low, high + 2)
    elif values.dtype.kind == "i":
        step = -(-(high - low + 1) // _BINS)
        edges = low + step * np.arange(_BINS + 1)
        edges = edges[: int(np.searchsorted(edges, high, side="right")) + 1]
    else:
        edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    counts, _ = np.histogram(values.astype(np.float64), edges)
    # The end of the last bar is a place without a value.
    return {
        "x": edges.tolist(),
        "series": [{"name": "count", "values": [*counts.tolist(), None]}],
        "bars": True,
        "xlabel": label,
    }


DISTRIBUTIONS = View("distributions", "Distributions", has_records, _show)
