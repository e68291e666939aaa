"""Sources of a merged virtual file, compared with the hashes that their rows had when they were merged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import h5py

from shardkeep.errors import ShardkeepError
from shardkeep.hdf5.merge.checks import Check
from shardkeep.hdf5.read_errors import first_line, reading
from shardkeep.hdf5.sources.inspection import DatasetInfo, Inspector
from shardkeep.hdf5.sources.source import Source, blocks, open_source
from shardkeep.hdf5.sources.templates import Templates
from shardkeep.hdf5.storage.content_hash import content_crc
from shardkeep.hdf5.virtual.source_search import SourceSearch

__all__ = ["MergedSources"]


class MergedSources:
    """The sources of an open virtual file that a merge wrote.

    Attributes
    ----------
    rows : int
        Number of rows that were read.
    """

    def __init__(self, merged: Source, progress: Callable[[int], None]) -> None:
        self._merged = merged
        self._progress = progress
        self.rows = 0

    def findings(self, checks: list[Check]) -> Iterator[str]:
        """Yield one line for each difference."""
        by_dataset: dict[str, set[str]] = {}
        by_file: dict[str, list[Check]] = {}
        for check in checks:
            by_dataset.setdefault(check.dataset, set()).add(check.file)
            by_file.setdefault(check.file, []).append(check)
        for name, files in by_dataset.items():
            yield from self._other_pointers(name, files)
        search = SourceSearch(os.path.abspath(self._merged.path), merged=True)
        templates = Templates(Inspector(rows=True))
        for file, wanted in by_file.items():
            path = os.fsdecode(search.find(os.fsencode(file)))
            if self._is_known_as_merged(templates, path, wanted):
                continue
            found = []
            try:
                with open_source(path) as source:
                    for check in wanted:
                        for finding in self._rows(source, check):
                            found.append(finding)
                            yield finding
                if not found and len(by_file) > 1:
                    templates.learn(path)
            except (ShardkeepError, PermissionError) as error:
                yield f"source {file!r}: {first_line(error)}"

    def _is_known_as_merged(self, templates: Templates, path: str, wanted: list[Check]) -> bool:
        """Return whether all rows of a source are read without HDF5, and have their hashes."""
        info = templates.known(path)
        if info is None or not all(_has_rows_of(info.datasets.get(one.dataset), one) for one in wanted):
            return False
        self.rows += sum(check.rows for check in wanted)
        self._progress(sum(info.datasets[check.dataset].stored_bytes for check in wanted))
        return True

    def _rows(self, source: Source, check: Check) -> Iterator[str]:
        try:
            with reading(source.path, check.dataset):
                dataset = source.dataset(check.dataset)
                if not dataset.shape or dataset.shape[0] != check.rows:
                    have = dataset.shape[0] if dataset.shape else "no"
                    yield f"source {check.file!r} has {have} rows of {check.dataset!r}, not {check.rows}"
                    return
                crc = 0
                for rows in blocks(dataset, 0, check.rows):
                    crc = content_crc(rows, crc)
                    self.rows += len(rows)
                    self._progress(rows.nbytes)
            if crc != check.crc32c:
                yield f"source {check.file!r} has other rows of {check.dataset!r} than when it was merged"
        except ShardkeepError as error:
            yield f"source {check.file!r}: {first_line(error)}"

    def _other_pointers(self, name: str, files: set[str]) -> Iterator[str]:
        dataset = self._merged.file.get(name)
        if not isinstance(dataset, h5py.Dataset) or not dataset.is_virtual:
            yield f"{name!r} is not the virtual dataset that was merged"
            return
        properties = dataset.id.get_create_plist()
        count = properties.get_virtual_count()
        there = {os.fsdecode(properties.get_virtual_filename(i)).replace("%%", "%") for i in range(count)}
        for file in sorted(there ^ files):
            yield f"{name!r} {'points' if file in there else 'does not point'} to {file!r}"


def _has_rows_of(found: DatasetInfo | None, check: Check) -> bool:
    return found is not None and found.rows == check.rows and found.crc32c == f"{check.crc32c:08x}"
