"""Check that the commits of a run are complete."""

from __future__ import annotations

from shardkeep._paths_in_messages import as_argument, repair_run_command
from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.segments.commit_record import parse_record
from shardkeep.hdf5.segments.described_data import data_path, read_described_data
from shardkeep.hdf5.segments.run_folder import list_ranks, list_segments
from shardkeep.hdf5.segments.series_check import RunCheck
from shardkeep.jobs.verification.finding import Finding, finding_of
from shardkeep.jobs.verification.report import VerifiedFile
from shardkeep.plan.proof.description import fingerprint_to_describe

__all__ = ["check_run"]


def check_run(folder: str, records: dict[str, str]) -> VerifiedFile:
    """Check the commits of a run folder from the commit records of its segments, by path."""
    check = RunCheck()
    commits = 0
    are_ranks_listed = is_mergeable = True
    described: set[str] = set()
    findings: list[Finding] = []
    repair = repair_run_command(folder)

    def add(text: str, command: str | None = None) -> None:
        findings.append(Finding("incomplete-run", text, folder, next=command))

    try:
        ranks = list_ranks(folder)
    except CorruptDataError as error:
        add(str(error), repair)
        return VerifiedFile(folder, "run", 0, 0, tuple(findings))
    for rank_folder in ranks.values():
        try:
            segments = list_segments(rank_folder, gaps=True)
        except CorruptDataError as error:
            add(str(error), repair)
            is_mergeable = False
            continue
        except OSError:  # the inventory has the finding; whether the run is complete is not known
            are_ranks_listed = False
            continue
        for segment in segments:
            text = records.get(segment.path)
            if text is None:
                is_mergeable = False
                continue
            commits += 1
            try:
                record = parse_record(text.encode(), segment.path)
                check.add(segment.path, record, listed=False)
            except CorruptDataError as error:
                add(str(error), repair)
                is_mergeable = False
                continue
            fingerprint = None if record.receipt is None else fingerprint_to_describe(record.receipt)
            if fingerprint is not None:
                described.add(data_path(folder, fingerprint))
    for path in sorted(described):
        try:
            read_described_data(path)
        except FileNotFoundError:
            add(
                f"{path!r}, which describes the data of the receipts, is missing: an audit names no shard and"
                " proves no epoch of whole files; restore it, or pass the shards to shardkeep audit as --data"
            )
        except CorruptDataError as error:
            add(str(error))
        except OSError as error:
            findings.append(finding_of(error, path))
    # A merge refuses a run with a damaged segment, also with --incomplete.
    output = f"{folder.rstrip('/') or folder}.h5"
    merge = f"shardkeep merge --incomplete warn {as_argument(folder)} {as_argument(output)}"
    for text in check.findings() if commits and are_ranks_listed else ():
        add(text, merge if is_mergeable else repair)
    return VerifiedFile(folder, "run", 0, commits, tuple(findings))
