"""Check that the commits of a run are complete."""

from __future__ import annotations

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.segments.commit_record import parse_record
from shardkeep.hdf5.segments.run_folder import list_ranks, list_segments
from shardkeep.hdf5.segments.series_check import RunCheck
from shardkeep.jobs.verification.finding import Finding, as_argument
from shardkeep.jobs.verification.report import VerifiedFile

__all__ = ["check_run"]


def check_run(folder: str, records: dict[str, str]) -> VerifiedFile:
    """Check the commits of a run folder from the commit records of its segments, by path."""
    check = RunCheck()
    commits = 0
    findings: list[Finding] = []

    def add(text: str, command: str | None = None) -> None:
        findings.append(Finding("incomplete-run", text, folder, next=command))

    try:
        ranks = list_ranks(folder)
    except CorruptDataError as error:
        add(str(error))
        return VerifiedFile(folder, "run", 0, 0, tuple(findings))
    for rank_folder in ranks.values():
        try:
            segments = list_segments(rank_folder, gaps=True)
        except CorruptDataError as error:
            add(str(error))
            continue
        for segment in segments:
            text = records.get(segment.path)
            if text is None:
                continue
            commits += 1
            try:
                check.add(segment.path, parse_record(text.encode(), segment.path), listed=False)
            except CorruptDataError as error:
                add(str(error))
    output = as_argument(f"{folder.rstrip('/')}.h5")
    for text in check.findings() if commits else ():
        add(text, f"shardkeep merge --incomplete warn {as_argument(folder)} {output}")
    return VerifiedFile(folder, "run", 0, commits, tuple(findings))
