"""Verification of an HDF5 file: a segment, a merged file and its sources, or any other file.

Contents are compared with the hashes that a commit (`shardkeep.hdf5.segments.commit_record`) or a merge
(`shardkeep.hdf5.merge.checks`) wrote. Of other files everything is read.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import h5py

from shardkeep._summary import summary
from shardkeep.errors import CorruptDataError, MissingExtraError, ShardkeepError
from shardkeep.files.kinds.urls import local_path
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.locking.reading import link_access, locks
from shardkeep.hdf5.merge.checks import Check, changed_chunks, failed_checks, read_checks
from shardkeep.hdf5.merge.provenance import PROVENANCE, read_findings
from shardkeep.hdf5.merged_sources import MergedSources
from shardkeep.hdf5.open.file import open_source_file
from shardkeep.hdf5.read_errors import first_line, is_of_hdf5, reading
from shardkeep.hdf5.segments.commit_record import CommitRecord
from shardkeep.hdf5.sources.links import NameCheck
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.sources.receipts import RECEIPTS
from shardkeep.hdf5.sources.source import Source, blocks, check_content, open_source
from shardkeep.hdf5.sources.stored_bytes import (
    read_attribute_bytes,
    read_chunk_bytes,
    read_row_bytes,
    unreadable_filter,
)
from shardkeep.hdf5.sources.tables import check_table
from shardkeep.hdf5.storage.byte_order import read_value
from shardkeep.hdf5.storage.content_hash import value_crc
from shardkeep.hdf5.storage.dtypes import has_parts_elsewhere, obstacle_to_reading
from shardkeep.hdf5.storage.names import decode_name, is_reserved, shown_name
from shardkeep.hdf5.virtual.dataset import VirtualDataset
from shardkeep.hdf5.virtual.layout import read_virtual_layout
from shardkeep.hdf5.virtual.sources import VirtualSources

__all__ = ["Verdict", "verify"]

Kind = Literal["segment", "merged", "virtual", "collected", "hdf5"]
_SHOWN = 20


@dataclass(frozen=True)
class Verdict:
    """Result of `verify`.

    Attributes
    ----------
    path : str
        The file.
    kind : {"segment", "merged", "virtual", "collected", "hdf5"}
        A commit of a worker; a merged copy; a merged file that points to its sources; the file of a
        collector; any other.
    rows : int
        Number of rows that were read, those of sources included.
    findings : tuple of str
        One line for each difference; empty for an undamaged file.
    record : CommitRecord or None
        The record of the commit of a segment.
    unreadable : tuple of str
        One line for each part that cannot be read here, with the reason and advice: a filter is not
        installed. It is not known to be damaged; its stored bytes were read.
    notes : tuple of str
        One line for each part that is intact and that h5py cannot show, for each soft link without a target,
        and for ranks and steps that were missing when the file was merged.
    """

    path: str
    kind: Kind
    rows: int
    findings: tuple[str, ...] = ()
    record: CommitRecord | None = field(default=None, repr=False)
    unreadable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    __repr__ = summary

    @property
    def ok(self) -> bool:
        """Whether everything was read, without findings."""
        return not self.findings and not self.unreadable

    def to_dict(self) -> dict[str, Any]:
        """Return the result in types that JSON has.

        Returns
        -------
        dict
        """
        return {key: value for key, value in asdict(self).items() if key != "record"} | {"ok": self.ok}


@accepts_urls("path", folders=True)
def verify(path: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None) -> Verdict:
    """Read everything in an HDF5 file and compare it with the hashes that it has.

    Parameters
    ----------
    path : str or os.PathLike
        A segment: rows and values must have the hash of their commit. A merged copy: rows and
        chunks must have the hash that they had when they were merged, and chunks must be
        decodable. A merged virtual file: every source must be there, with as many rows as then and
        the same hash. Of both: values, attributes and links must have the hash that they had, and no
        rows may have been added. Any other file, that of a collector too: all rows and attributes must be
        readable, and the files must exist to which its virtual and external datasets and its external
        links point.
    progress : callable, optional
        Called with the number of bytes of each block that was read.

    Returns
    -------
    Verdict

    Raises
    ------
    NotFoundError, FormatError, LockError, BudgetError, CorruptDataError, TruncatedFileError
        The file itself cannot be opened. Damage inside it is a finding.

    Notes
    -----
    A malformed file can crash HDF5 and the process with it: for files of unknown origin use the
    command ``shardkeep verify``, which reads in a separate process. Nothing is written, so a crash
    leaves the file as it is. A collector may write the file meanwhile: its last durable state is
    verified.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.h5")
    >>> with h5py.File(path, "w") as file:
    ...     file["x"] = [1, 2, 3]
    >>> found = verify(path)
    >>> found.kind, found.rows, found.ok
    ('hdf5', 3, True)
    """
    name = local_path(path)
    with open_source(name) as source:
        work = _Work(source, progress or (lambda _: None))
        if source.record is not None:
            kind: Kind = "segment"
            found = work.segment(source.record)
        else:
            with reading(name):
                checks = read_checks(source.file, name)
            virtual = checks is not None and any(check.file for check in checks)
            plain: Kind = "collected" if source.collected else "hdf5"
            kind = plain if checks is None else "virtual" if virtual else "merged"
            found = work.everything() if checks is None else work.merged(checks)
        findings = _limited(_whole(found, name))
        unreadable, notes = _limited(work.unreadable), _limited(work.notes)
        return Verdict(name, kind, work.rows, findings, source.record, unreadable, notes)


def _limited(texts: Iterable[str]) -> tuple[str, ...]:
    all_texts = iter(texts)
    shown = list(itertools.islice(all_texts, _SHOWN))
    more = sum(1 for _ in all_texts)
    return (*shown, f"and {more:,} more") if more else tuple(shown)


def _whole(findings: Iterator[str], path: str) -> Iterator[str]:
    """Yield findings; an error that ends them is one more."""
    try:
        with reading(path):
            yield from findings
    except CorruptDataError as error:
        yield first_line(error)


class _Work:
    def __init__(self, source: Source, progress: Callable[[int], None]) -> None:
        self._source = source
        self._progress = progress
        self.rows = 0
        self.unreadable: dict[str, None] = {}
        self.notes: list[str] = []
        self._sizes: dict[str, tuple[int, int]] = {}

    def segment(self, record: CommitRecord) -> Iterator[str]:
        for name, one in record.datasets.items():
            try:
                check_content(self._source, name, one.crc32c)
            except ShardkeepError as error:
                yield from self._failed(error)
            self.rows += one.rows
            self._progress(self._size(name)[0])
        for name in changed_chunks(self._source.file, self._source.path, record):
            yield f"the chunks of {name!r} are not those of its commit"
        for name, put in record.puts.items():
            if put.sequence != record.sequence:
                continue
            try:
                if f"{self._crc_of_value(name):08x}" != put.crc32c:
                    yield f"the value {name!r} is not that of its commit"
            except ShardkeepError as error:
                yield from self._failed(error)
        yield from self.everything(but={*record.objects})

    def merged(self, checks: list[Check]) -> Iterator[str]:
        file, path = self._source.file, self._source.path
        here = [check for check in checks if not check.file]
        with open(path, "rb", buffering=0) as opened:
            raw = RawFile(opened.fileno(), path, os.fstat(opened.fileno()).st_size)
            checked = failed_checks(file, raw, here)
            while True:
                try:
                    check, wrong = next(checked)
                except StopIteration:
                    break
                except Exception as error:
                    if not isinstance(error, ShardkeepError) and not is_of_hdf5(error):
                        raise
                    yield from self._failed(error, "cannot be read: ")
                    break
                self.rows += check.rows
                stored_bytes, rows = self._size(check.dataset)
                self._progress(stored_bytes * check.rows // max(1, rows))
                if wrong is not None:
                    yield f"{check.described}: the file {wrong}"
                elif check.kind == "chunks":
                    yield from self._decodes(check)
        for table in (PROVENANCE, RECEIPTS):
            try:
                check_table(file, table, path)
            except ShardkeepError as error:
                yield from self._failed(error)
        with reading(path, PROVENANCE, "table"):
            self.notes += [f"{text}, when it was merged" for text in read_findings(file)]
        sources = MergedSources(self._source, self._progress)
        yield from sources.findings([check for check in checks if check.file])
        self.rows += sources.rows
        yield from self._more_rows(checks)
        covered = {check.dataset for check in checks if check.counts_rows or check.kind == "value"}
        yield from self.everything(but=covered)

    def everything(self, but: Container[str] = ()) -> Iterator[str]:
        """Read all attributes and all datasets, without hashes, and the files to which they point."""
        path, file = self._source.path, self._source.file.id
        names: list[tuple[bytes, int]] = [(b".", h5py.h5l.TYPE_HARD)]
        with reading(path):
            check = NameCheck(file)
            file.links.visit(lambda name, info: names.append((name, info.type)), info=True)
            for code, _ in names[1:]:
                check.add(decode_name(code))
            check.finish()
        known = set()
        for code, kind in names:
            name = "/" if code == b"." else decode_name(code)
            try:
                with reading(path, name, "object"):
                    if kind != h5py.h5l.TYPE_HARD:
                        yield from self._link(code, kind)
                        continue
                    item = h5py.h5o.open(file, code)
                    address = h5py.h5o.get_info(item).addr
                    if address in known:
                        continue
                    known.add(address)
                yield from self._attributes(item, name)
                if isinstance(item, h5py.h5d.DatasetID) and name not in but:
                    yield from self._dataset(item, name)
            except ShardkeepError as error:
                yield from self._failed(error)

    # -- inside ----------------------------------------------------------------------------------

    def _failed(self, error: Exception, before: str = "") -> Iterator[str]:
        """Yield an error as a finding, unless the part cannot be read here."""
        if isinstance(error, MissingExtraError):
            self.unreadable[first_line(error)] = None
        else:
            yield before + first_line(error)

    def _link(self, name: bytes, kind: int) -> Iterator[str]:
        path, file, shown = self._source.path, self._source.file.id, shown_name(decode_name(name))
        target: Any = b""
        if kind in (h5py.h5l.TYPE_SOFT, h5py.h5l.TYPE_EXTERNAL):
            target = file.links.get_val(name)
        subject = f"the link {shown}"
        if kind == h5py.h5l.TYPE_EXTERNAL:
            other, inside = map(os.fsdecode, target)
            subject = f"the external link {shown} to {inside!r} in {other!r}"
            refuse_damage(os.path.join(os.path.dirname(path), other))
        elif target:
            subject += f" to {shown_name(decode_name(target))}"
        try:
            h5py.h5o.open(file, name, lapl=link_access(locked=locks(path)))
        except (KeyError, OSError, RuntimeError) as error:
            if kind == h5py.h5l.TYPE_EXTERNAL:
                yield f"{subject} cannot be followed ({first_line(error)})"
            else:
                self.notes.append(f"{subject} leads nowhere")

    def _attributes(self, item: Any, name: str) -> Iterator[str]:
        for index in range(h5py.h5a.get_num_attrs(item)):
            try:
                with reading(self._source.path, name, f"attribute {index} of"):
                    attribute = h5py.h5a.open(item, index=index)
                    label = f"attribute {shown_name(decode_name(attribute.name))} of"
                with reading(self._source.path, name, label):
                    read_attribute_bytes(attribute)
            except ShardkeepError as error:
                yield from self._failed(error)
            else:
                self._note_type(attribute.get_type(), f"{label} {shown_name(name)}")

    def _dataset(self, item: h5py.h5d.DatasetID, name: str) -> Iterator[str]:
        path = self._source.path
        with reading(path, name):
            dataset = h5py.Dataset(item)
            unreadable = unreadable_filter(item, path, name)
            if unreadable is not None:
                self._progress(read_chunk_bytes(item, path))
                raise unreadable
            if dataset.is_virtual:
                obstacle = obstacle_to_reading(item.get_type())
                if obstacle is None:
                    self._virtual(dataset, name)
                else:
                    self.unreadable[f"{shown_name(name)} is virtual and {obstacle}: verify its sources"] = (
                        None
                    )
                return
            yield from self._pointers(dataset, name)
            self._note_type(item.get_type(), shown_name(name))
            if has_parts_elsewhere(item.get_type()):
                refuse_damage(path, rows=True)
            for size_bytes in read_row_bytes(item):
                self._progress(size_bytes)
            self.rows += 0 if is_reserved(name) else (dataset.shape or (0,))[0]

    def _note_type(self, kind: h5py.h5t.TypeID, subject: str) -> None:
        obstacle = obstacle_to_reading(kind)
        if obstacle is not None:
            self.notes.append(f"{subject} {obstacle}; its bytes are intact, h5dump can show them")

    def _more_rows(self, checks: list[Check]) -> Iterator[str]:
        merged: dict[str, int] = {}
        for check in checks:
            if check.counts_rows:
                merged[check.dataset] = merged.get(check.dataset, 0) + check.rows
        for name, rows in merged.items():
            there = self._size(name)[1]
            if there > rows:
                yield f"{name!r} has {there} rows, {rows} were merged"

    def _decodes(self, check: Check) -> Iterator[str]:
        """Decode chunks that may have been damaged before the merge: no hash shows that, but a filter may."""
        try:
            with reading(self._source.path, check.dataset):
                dataset = self._source.dataset(check.dataset)
                for _ in blocks(dataset, check.first_row, check.first_row + check.rows):
                    pass
        except ShardkeepError as error:
            yield from self._failed(error)

    def _pointers(self, dataset: h5py.Dataset, name: str) -> Iterator[str]:
        folder = os.path.dirname(os.path.abspath(self._source.path))
        for file, *_ in dataset.external or ():
            if not os.path.exists(os.path.join(folder, os.fsdecode(file))):
                yield f"{name!r} keeps its rows in {os.fsdecode(file)!r}, which does not exist"

    def _virtual(self, dataset: h5py.Dataset, name: str) -> None:
        """Read rows of other files; plain HDF5 would return fill values for those that it cannot read."""
        path = os.path.abspath(self._source.path)
        layout = read_virtual_layout(dataset.file.id, path, f"/{name}", dataset.id)
        virtual = VirtualDataset(VirtualSources(path, f"/{name}", layout, None, open_source_file))
        try:
            virtual.check()
            if not dataset.shape:
                virtual.read(dataset, ())
                return
            for rows in blocks(dataset, 0, dataset.shape[0], lambda where: virtual.read(dataset, where)):
                self.rows += len(rows)
                self._progress(rows.nbytes)
        finally:
            virtual.close_sources()

    def _crc_of_value(self, name: str) -> int:
        dataset = self._source.dataset(name)
        with reading(self._source.path, name):
            value = read_value(dataset)
        return value_crc(value, dataset.dtype)

    def _size(self, name: str) -> tuple[int, int]:
        """Return the stored bytes and the number of rows of a dataset."""
        if name not in self._sizes:
            dataset = self._source.file.get(name)
            stored = rows = 0
            if isinstance(dataset, h5py.Dataset):
                stored, rows = int(dataset.id.get_storage_size()), dataset.shape[0] if dataset.shape else 0
            self._sizes[name] = stored, rows
        return self._sizes[name]
