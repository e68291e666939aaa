"""Schemas of Examples, inferred from their content."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from shardkeep import _core
from shardkeep.errors import CorruptDataError, CorruptRecordError, FormatError, SchemaError
from shardkeep.files.paths import PathsLike, expand
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.plan.checks import MAX_RECORDS, checked_int
from shardkeep.progress import Count, Progress, ticking
from shardkeep.quantities import counted
from shardkeep.tfrecord.damage import OnCorrupt, check_on_corrupt, read_records
from shardkeep.tfrecord.example.example import decode_example
from shardkeep.tfrecord.example.features import Feature, FeatureDType, FixedLen, Image, VarLen
from shardkeep.tfrecord.reader import Reader

__all__ = ["FeatureFacts", "Schema", "infer_schema"]

_SHOWN_NAMES, _SHOWN_CHARACTERS = 8, 100  # in the repr of a schema


@dataclass
class FeatureFacts:
    """Observations of one feature in the sampled records.

    Attributes
    ----------
    kind : {"int64", "float32", "bytes"} or None
        None if no record has a list of values, not even an empty one.
    seen : int
        Number of records that have it, with a value or without.
    lengths : (int, int)
        The smallest and the largest number of values in these.
    images : Counter of (height, width, channels)
        Image sizes of the records whose one value is a PNG, JPEG or WebP.
    first : str
        The first record that has values: its file and number.
    """

    kind: FeatureDType | None = None
    seen: int = 0
    lengths: tuple[int, int] = (0, 0)
    images: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    first: str = ""

    def note(self, values: Any, place: str, name: str) -> None:
        """Count the values of one more record."""
        count = 0 if values is None else len(values)
        low, high = self.lengths if self.seen else (count, count)
        self.lengths = (min(low, count), max(high, count))
        self.seen += 1
        if values is None:
            return
        kind: Any = "bytes" if isinstance(values, list) else str(values.dtype)
        if self.kind is None:
            self.kind, self.first = kind, place
        elif self.kind != kind:
            raise SchemaError(
                f"feature {name!r}: {self.kind} in {self.first}, but {kind} in {place}: a feature has one"
                " kind"
            )
        if kind == "bytes" and count == 1 and (shape := _core.image_shape(values[0])):
            self.images[shape] += 1

    def feature(self, records: int) -> Feature:
        """Return the feature specification that reads all of the sampled records."""
        low, high = self.lengths
        if self.seen < records or low != high or not high or self.kind is None:
            return VarLen(self.kind or "bytes")
        if sum(self.images.values()) < records:
            return FixedLen(() if high == 1 else (high,), self.kind)
        channels = {shape[2] for shape in self.images}
        sizes = Counter[tuple[int, int]]()
        for (height, width, _), count in self.images.items():
            sizes[height, width] += count
        return Image(
            (channels.pop() if channels <= {1, 3, 4} else 0) if len(channels) == 1 else 3,
            "uint8",
            # The most frequent size, the largest of equally frequent ones: independent of the record order.
            max(sizes, key=lambda size: (sizes[size], size)) if len(sizes) > 1 else None,
        )

    def remark(self, records: int) -> str:
        """Return a short comment with the observations that the feature itself does not contain."""
        words = []
        if self.seen < records:
            words.append(f"missing in {records - self.seen:,} of {records:,}")
        low, high = self.lengths
        if not high:
            words.append("never has a value")
        elif low != high:
            words.append(f"{low:,} to {high:,} values")
        elif self.seen < records:
            words.append(f"else {counted(high, 'value')}")
        if self.images and sum(self.images.values()) == self.seen:
            words.append(_sizes(self.images))
        return ", ".join(words)


class Schema(dict[str, Feature]):
    """Features by name, as `infer_schema` found them: a dict that can be passed as ``features=``.

    Attributes
    ----------
    records : int
        Number of records that were sampled.
    files : int
        Number of files that the sampled records are from.
    facts : dict of str to FeatureFacts
        Observations of each feature.
    """

    def __init__(self, facts: dict[str, FeatureFacts], *, records: int, files: int) -> None:
        super().__init__((name, facts[name].feature(records)) for name in sorted(facts))
        self.records = records
        self.files = files
        self.facts = facts

    def __repr__(self) -> str:
        names = ", ".join(islice(self, _SHOWN_NAMES)) + (", …" if len(self) > _SHOWN_NAMES else "")
        found = f"{counted(len(self), 'feature')} in {counted(self.records, 'record')}"
        return f"<Schema of {found}: {names[:_SHOWN_CHARACTERS]}; source() is its code>"

    def source(self) -> str:
        """Return the schema as Python source, to be pasted where ``features=`` is needed.

        Returns
        -------
        str
            The import of the features, and an assignment to ``features`` with the observations as comments.

        Examples
        --------
        >>> facts = {"label": FeatureFacts("int64", 2, (1, 1)), "words": FeatureFacts("bytes", 1, (3, 3))}
        >>> print(Schema(facts, records=2, files=1).source())
        # inferred from 2 records of 1 file
        from shardkeep import FixedLen, VarLen
        <BLANKLINE>
        features = {
            "label": FixedLen((), "int64"),
            "words": VarLen("bytes"),  # missing in 1 of 2, else 3 values
        }
        """
        names = sorted({type(feature).__name__ for feature in self.values()})
        lines = [
            f"# inferred from {counted(self.records, 'record')} of {counted(self.files, 'file')}",
            *([f"from shardkeep import {', '.join(names)}", ""] if names else []),
            "features = {",
        ]
        for name, feature in self.items():
            remark = self.facts[name].remark(self.records)
            lines.append(f"    {_quoted(name)}: {_source(feature)}," + (f"  # {remark}" if remark else ""))
        return "\n".join([*lines, "}"])

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as values that the json module can write.

        Returns
        -------
        dict
            ``records``, ``files``, and for each name in ``features`` its feature and observations.
        """
        features = {}
        for name, feature in self.items():
            facts = self.facts[name]
            features[name] = {
                "feature": _source(feature),
                "kind": facts.kind,
                "records": facts.seen,
                "smallest_length": facts.lengths[0],
                "largest_length": facts.lengths[1],
                "images": [[*shape, count] for shape, count in sorted(facts.images.items())],
            }
        return {"records": self.records, "files": self.files, "features": features}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Schema, records=self.records, files=self.files), (self.facts,)


@accepts_urls("paths")
def infer_schema(
    paths: PathsLike,
    sample: int | None = 1000,
    *,
    on_corrupt: OnCorrupt = "raise",
    progress: Progress | None = None,
) -> Schema:
    """Infer from the content of `tf.train.Example` records what to pass as ``features=``.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord files, compressed or not.
    sample : int or None
        Number of records to sample in all; None for every one. They are spread over all files (over at most
        as many files as records to sample): the first records of each file, and as many more at equal
        distances through the file. Of a compressed file only the first records are sampled. The same files
        always yield the same sample.
    on_corrupt : {"raise", "skip", "repair"}
        What to do with a damaged record: fail, leave it out, or correct it if one bit is flipped (and fail at
        other damage).
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)``.

    Returns
    -------
    Schema
        A dict from the names, in sorted order, to:

        - `FixedLen` of shape () or (n,): every sampled record has it, with this number of values;
        - `Image`, uint8: every sampled record has it as one PNG, JPEG or WebP. Its channels are those of the
          images, or 3 if they differ. ``size`` is None where all have one size, so that an image of another
          size is an error later; where sizes differ, it is the most frequent size, to which the others are
          resized;
        - `VarLen`: everything else: a number of values that differs, or a feature that some records lack. The
          latter is never a `FixedLen` with a default, since a default cannot be distinguished from a stored
          value; to use one, write ``FixedLen(shape, dtype, default=…)`` instead.

        ``schema.source()`` is Python source with the observations as comments. A record outside the sample
        may still differ: reading it then raises an error that names it.

    Warns
    -----
    RuntimeWarning
        For each damaged record in the sample that was skipped or repaired.

    Raises
    ------
    SchemaError
        A feature has different kinds in two records, both of which are named; the files hold no record; or a
        record is not a valid message.
    FormatError
        The records are another message, text or images, which the error names; also as `Reader`.
    CorruptRecordError, TruncatedFileError, NotFoundError
        As `Reader`.
    PlanError
        `sample` is less than 1, or `on_corrupt` is not valid.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import Writer
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> with Writer(path) as w:
    ...     for i in range(3):
    ...         w.write_example({"box": [0.5, 1.0], "label": i, "words": [b"w"] * i + [b"end"]})
    >>> print(infer_schema(path).source())
    # inferred from 3 records of 1 file
    from shardkeep import FixedLen, VarLen
    <BLANKLINE>
    features = {
        "box": FixedLen((2,), "float32"),
        "label": FixedLen((), "int64"),
        "words": VarLen("bytes"),  # 1 to 3 values
    }
    """
    if sample is not None:
        sample = checked_int("sample", sample, 1, MAX_RECORDS)
    check_on_corrupt(on_corrupt)
    names = expand(paths)
    if sample is not None and len(names) > sample:
        names = [names[int(i)] for i in np.linspace(0, len(names) - 1, sample)]
    facts: dict[str, FeatureFacts] = {}
    records = 0
    count = Count(progress or (lambda *_: None), sum(map(os.path.getsize, filter(os.path.exists, names))))
    # The unused share of a small file goes to the files after it.
    for position, path in enumerate(names):
        share = None if sample is None else -(-(sample - records) // (len(names) - position))
        for number, record in _sampled(path, share, on_corrupt, count):
            for name, values in _decoded(record, path, number).items():
                facts.setdefault(name, FeatureFacts()).note(values, f"{path} record {number}", name)
            records += 1
        if share is not None:
            count.add(os.path.getsize(path))
    if not records:
        raise SchemaError(
            f"{names[0]}: the files hold no record, so no features can be inferred", path=names[0]
        )
    return Schema(facts, records=records, files=len(names))


def _sampled(
    path: str, share: int | None, on_corrupt: OnCorrupt, count: Count
) -> Iterator[tuple[int, bytes]]:
    reader = Reader(path)
    if share is None:
        file_bytes = os.path.getsize(path)
        records = read_records(path, on_corrupt=on_corrupt)
        is_compressed = reader.compression is not None
        yield from ticking(records, lambda one: len(one[1]), file_bytes, count.add, compressed=is_compressed)
        return
    if reader.compression is not None:
        yield from islice(read_records(path, on_corrupt=on_corrupt), share)
        return
    try:
        found = list(_spread(reader, share))
    except CorruptDataError:
        if on_corrupt == "raise":
            raise
        found = list(islice(read_records(path, on_corrupt=on_corrupt), share))
    yield from found


def _spread(reader: Reader, share: int) -> Iterator[tuple[int, bytes]]:
    first = -(-share // 2)
    # A short file is read without an index.
    head = list(islice(reader, first + 1))
    yield from enumerate(head[:first])
    if len(head) <= first or share == first:
        return
    count = len(reader)
    rest = np.unique(np.linspace(first, count - 1, share - first).astype(np.int64))
    yield from zip(rest.tolist(), reader.read_many(rest), strict=True)


def _decoded(record: bytes, path: str, number: int) -> dict[str, Any]:
    try:
        return decode_example(record)
    except (CorruptRecordError, FormatError) as error:
        kind = FormatError if isinstance(error, FormatError) else SchemaError
        raise kind(f"{path}: record {number}: {error}", path=path, record=number) from None


def _source(feature: Feature) -> str:
    if isinstance(feature, Image):
        size = "" if feature.size is None else f", size={feature.size!r}"
        return f"Image({feature.channels}, {_quoted(feature.dtype)}{size})"
    if isinstance(feature, VarLen):
        return f"VarLen({_quoted(feature.dtype)})"
    return f"FixedLen({feature.shape!r}, {_quoted(feature.dtype)})"


def _quoted(text: str) -> str:
    quoted = ascii(text)
    return f'"{quoted[1:-1]}"' if '"' not in quoted and "\\'" not in quoted else quoted


def _sizes(images: Counter[tuple[int, int, int]]) -> str:
    heights, widths = ({shape[axis] for shape in images} for axis in (0, 1))
    smallest, largest = f"{min(heights)}x{min(widths)}", f"{max(heights)}x{max(widths)}"
    return f"images of {smallest}" if smallest == largest else f"images of {smallest} to {largest}"
