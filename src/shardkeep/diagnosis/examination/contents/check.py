"""Check of the files of a job, which needs h5py."""

from __future__ import annotations

from collections.abc import Iterator

from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.diagnosis.examination.subject import Subject

__all__ = ["check_files"]


def check_files(subject: Subject) -> Iterator[Problem | Fact]:
    """Examine the paths of a job, if there are any and the libraries that read them can be imported."""
    if not subject.paths:
        return
    try:
        from shardkeep.diagnosis.examination.contents.survey import survey
    except ImportError as error:
        evidence = f"the files were not examined, since a library cannot be imported: {error}"
        yield Problem("error", "files", evidence, "install it again", "python -m pip install -U h5py numpy")
        return
    yield from survey(subject)
