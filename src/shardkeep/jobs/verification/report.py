"""Report of a verification."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from shardkeep._summary import summary, summary_html
from shardkeep.jobs.verification.finding import Finding

__all__ = ["SkippedFile", "VerifiedFile", "VerifyReport"]


@dataclass(frozen=True)
class VerifiedFile:
    """Result of one file.

    Attributes
    ----------
    path : str
    kind : str
        "tfrecord"; "segment", "merged", "virtual", "collected" or "hdf5" (see `shardkeep.hdf5.verify`); "run"
        for the folder of a run, whose commits must be complete; "set" for shards ``-of-00008`` of which some
        are missing; "other" for a path that is not a data file or cannot be read.
    file_bytes : int
        Size of the file.
    items : int
        Number of records or rows that were read; for a run the number of commits.
    findings : tuple of Finding
        Damaged, missing or changed data; empty for a file without.
    notes : tuple of str
        Remarks about an intact file: ranks that were missing when it was merged, parts of an HDF5 file that
        h5py cannot show, soft links without a target.
    """

    path: str
    kind: str
    file_bytes: int
    items: int
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    __repr__ = summary


@dataclass(frozen=True)
class SkippedFile:
    """A file of a folder that was not checked, since it is not a data file: its path, and a description."""

    path: str
    described: str

    __repr__ = summary


@dataclass(frozen=True)
class VerifyReport:
    """Report of `verify`.

    Attributes
    ----------
    files : tuple of VerifiedFile
        Results in the order of the paths.
    skipped : tuple of SkippedFile
        All other files of the folders: indexes, lock files, text, and files of kinds that Shardkeep does not
        know.
    """

    files: tuple[VerifiedFile, ...]
    skipped: tuple[SkippedFile, ...] = ()

    __repr__ = summary
    _repr_html_ = summary_html

    @property
    def ok(self) -> bool:
        """True if no file has a finding."""
        return not any(one.findings for one in self.files)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all files."""
        return tuple(finding for one in self.files for finding in one.findings)

    @property
    def skipped_kinds(self) -> dict[str, int]:
        """Description to the number of skipped files, the most frequent first."""
        return dict(Counter(one.described for one in self.skipped).most_common())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as types that JSON supports."""
        return {"ok": self.ok, **asdict(self), "skipped_kinds": self.skipped_kinds}
