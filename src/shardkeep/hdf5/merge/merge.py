"""Merge of many HDF5 files into one, which appears complete and checked, or not at all.

The order of writes: the result is written to a temporary file in the folder of the output, datasets first
(`shardkeep.hdf5.merge.copy`), then links, provenance, receipts and the hashes of everything. It is closed,
read back against these hashes, compared with the sources through HDF5, synced, and renamed. Sources are only
read.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, overload

import h5py

from shardkeep._paths_in_messages import repair_run_command, shown
from shardkeep._summary import summary, summary_html
from shardkeep.errors import CorruptDataError, ExistsError, FormatError, PlanError
from shardkeep.files.incomplete import Incomplete, check_incomplete, report_incomplete
from shardkeep.files.kinds.special import refuse_special
from shardkeep.files.kinds.urls import is_url, path_or_url
from shardkeep.files.leftovers import let_read
from shardkeep.files.positioned import signals_between_calls
from shardkeep.files.publish import Exists, publish_raw
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.files.user_warning import warn_user
from shardkeep.files.writeback import Writeback
from shardkeep.hdf5.merge.checks import Check, failed_checks, write_checks
from shardkeep.hdf5.merge.comparison import Extent, compare_with_sources
from shardkeep.hdf5.merge.copy import fill
from shardkeep.hdf5.merge.find_sources import Sources
from shardkeep.hdf5.merge.plan import MergePlan, Mode
from shardkeep.hdf5.merge.planner import plan_merge
from shardkeep.hdf5.merge.provenance import write_provenance
from shardkeep.hdf5.merge.result import name_checks, write_links
from shardkeep.hdf5.merge.schema import OnMismatch
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.sources.receipts import write_receipts
from shardkeep.progress import Count, Parts, Progress

__all__ = ["MergeReport", "merge"]


@dataclass(frozen=True)
class MergeReport:
    """Result of a merge.

    Attributes
    ----------
    output : str
        Path of the merged file.
    mode : str
        As in the call.
    rows : dict
        Number of rows of each dataset of the result.
    sources : tuple of str
        The merged files, in the order of their rows.
    ways : dict
        The strategy for each dataset, and the reason for it.
    dropped_attributes : dict
        Attributes of each dataset and group that are left out, since they differ between the sources or
        cannot be in another file.
    bytes : int
        Size of the result.
    seconds : float
        Duration of the merge.
    findings : tuple of str
        Commits and keys that seem to be missing or to be there twice: ranks of the newest commit's
        world without a commit or with an older newest step, commits that are missing before another
        one of their rank, commits of an earlier world that overlap the newest one, a list that does not
        begin with the first commit of a rank, keys that are missing; and findings of merged files among
        the sources. Empty for a complete run.
    order_by : str
        "rank", "step" or the dataset of the keys.
    left_out : dict
        For each ``object@attribute``, link or named type that is left out, the reason.
    check : str
        "sample" or "full", as in the call.
    compared : dict
        Number of rows of each dataset that were compared with the sources by value, through HDF5.
    """

    output: str
    mode: str
    rows: dict[str, int]
    sources: tuple[str, ...]
    ways: dict[str, str]
    dropped_attributes: dict[str, tuple[str, ...]]
    bytes: int
    seconds: float
    findings: tuple[str, ...] = ()
    order_by: str = "rank"
    left_out: dict[str, str] = field(default_factory=dict)
    check: str = "sample"
    compared: dict[str, int] = field(default_factory=dict)

    __repr__ = summary
    _repr_html_ = summary_html

    def to_dict(self) -> dict[str, Any]:
        """Return the report in types that JSON has.

        Returns
        -------
        dict
        """
        return asdict(self)


@overload
def merge(
    sources: Sources,
    output: str | os.PathLike[str],
    *,
    mode: Mode = ...,
    order_by: str = ...,
    on_mismatch: OnMismatch = ...,
    exists: Exists = ...,
    incomplete: Incomplete = ...,
    check: Extent = ...,
    dry_run: Literal[False] = ...,
    executor: Executor | None = ...,
    progress: Progress | None = ...,
) -> MergeReport: ...


@overload
def merge(
    sources: Sources,
    output: str | os.PathLike[str],
    *,
    mode: Mode = ...,
    order_by: str = ...,
    on_mismatch: OnMismatch = ...,
    exists: Exists = ...,
    incomplete: Incomplete = ...,
    check: Extent = ...,
    dry_run: Literal[True],
    executor: Executor | None = ...,
    progress: Progress | None = ...,
) -> MergePlan: ...


@accepts_urls("sources", folders=True)
def merge(
    sources: Sources,
    output: str | os.PathLike[str],
    *,
    mode: Mode = "auto",
    order_by: str = "rank",
    on_mismatch: OnMismatch = "refuse",
    exists: Exists = "fail",
    incomplete: Incomplete = "refuse",
    check: Extent = "sample",
    dry_run: bool = False,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> MergeReport | MergePlan:
    """Merge the worker files of a run, or any HDF5 files, into one file.

    Parameters
    ----------
    sources : str, os.PathLike or iterable of them
        A run folder (every commit that was not rolled back), or HDF5 files, which need not be worker
        files: a pattern (``"run*/part-*.h5"``, matches sorted by name) or a list of paths and patterns.
    output : str or os.PathLike
        Path of the merged file.
    mode : {"auto", "copy", "virtual"}
        "copy" writes every row into the result: compressed chunks are copied as they are where that
        is provably safe, other rows are compressed again. "virtual" writes a small file that points
        to the sources by relative paths, and is complete only as long as they are. All rows are read
        once: those of segments must have the hash of their commit, and the hash of each source is
        kept for `shardkeep.hdf5.verify`. "auto" is "copy".
    order_by : str
        "rank": by rank, then in the order of the commits; a list of files in its order. "step": by
        step, then rank. Otherwise the name of a dataset with one integer for each row: every
        dataset with as many rows in each source is put in the order of these keys, the others
        stay by rank. A key that occurs twice is an error that names the ranks; missing keys
        between 0 and the greatest are a finding.
    on_mismatch : {"refuse", "promote"}
        Treatment of dtypes that differ. "promote" widens where no value changes
        (`shardkeep.hdf5.storage.casts`), and leaves out attributes, links and named types that
        some files lack, that differ, or that lead to another file.
    exists : {"fail", "replace"}
        Treatment of an existing output.
    incomplete : {"refuse", "warn", "allow"}
        Treatment of commits that seem to be missing (of a whole rank, of one that ends before the
        others, or before another commit) or to be there twice, and of missing keys: a `CorruptDataError`, a
        `RuntimeWarning`, or nothing. A run that is not finished has such findings, too. The merged file
        keeps them
        (`shardkeep.hdf5.merge.provenance.read_findings`), and ``report.findings`` has them.
    check : {"sample", "full"}
        Rows that are read back through HDF5 before the result appears, and compared with those of the
        sources by value: some of each dataset and source, or all. ``report.compared`` has their number.
    dry_run : bool
        Whether to return the plan, which prints as a table, and write nothing.
    executor : concurrent.futures.Executor, optional
        Its workers copy compressed chunks that stay as they are; see `shardkeep.engine`. Other rows are
        copied by this process.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)``. The total is the size of the sources, of which the
        inspection, the copy, the order of a key, the check and the sync each have a part.

    Returns
    -------
    MergeReport, or with `dry_run` MergePlan

    Raises
    ------
    NotFoundError, FormatError, CorruptDataError, TruncatedFileError, LockError
        A source is missing, of another kind, unreadable, damaged (its rows do not have the hash
        of their commit, in every mode; compressed chunks of a plain file have no hash and are not
        decoded, which `shardkeep.hdf5.verify` of the result does), cut off, being written, or was
        changed during the merge. Its rows are never replaced by fill values. Segments of one rank
        are out of order, or leave a gap in a list. A key occurs twice. The run is not complete, and
        `incomplete` is "refuse".
    SchemaError
        Dtype (byte order, enum members), row shape, the set of datasets, links or attributes differ, or
        there are rows that a merge would lose: virtual and external datasets, links to other files;
        its ``table`` has the schema of each group of sources. A worker that never appended to a
        dataset has no rows of it, and one that never set an attribute agrees with those that did.
    PlanError
        An argument is not valid, or a file is named twice.
    ExistsError, DurabilityError
        The output exists, or cannot be written.
    EngineError
        The executor did not finish a task.

    Notes
    -----
    **After a crash** at any instant, and after any error, the output is complete and synced, or it is
    as it was before. Sources are never changed.

    The result also has the tables ``_provenance`` (`shardkeep.hdf5.merge.provenance`), ``_receipts``
    (the newest receipt of each Loader, as JSON) and ``_checks`` (`shardkeep.hdf5.merge.checks`). Before it
    appears it is read back and compared with the hashes of the rows that were read from the sources.
    Attributes of datasets, groups and the file are kept where all sources agree; of a rank its newest
    commit counts. Values that ranks wrote once (`put`) are kept if they are equal; otherwise they become
    one row for each rank, and the attribute ``_ranks`` has the numbers of the ranks. All types but
    references are kept, variable-length numbers and text included.

    Of plain files, further names are kept: hard links to datasets and groups, soft links, named types.
    Contents that cannot be in another file are left out, with a reason in ``left_out`` and a
    `RuntimeWarning`: attributes that refer to objects, attachments to dimension scales, user blocks,
    objects and attributes with a name that is reserved for Shardkeep.

    At most four sources are open at a time, so ``ulimit -n`` does not matter. Workers may continue to
    write: the commits before the call are merged. So may a collector, whose file is merged in its last
    durable state, and which adds nothing to the file during the merge. In the order of a key, memory is
    32 bytes for each row, and rows that do not fit into 256 MiB go through a scratch file in the folder of
    the output, which needs the space of the rows once more.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.hdf5.worker.worker_file import WorkerFile
    >>> from shardkeep.world import World
    >>> run = tempfile.mkdtemp()
    >>> for rank in range(2):
    ...     with WorkerFile(run, World(rank=rank, size=2)) as out:
    ...         out.append("loss", [rank + 0.5])
    ...         out.commit(step=1)
    >>> report = merge(run, os.path.join(run, "all.h5"))
    >>> report.rows
    {'loss': 2}
    >>> with h5py.File(report.output) as file:
    ...     file["loss"][:].tolist()
    [0.5, 1.5]
    """
    start = time.monotonic()
    target = path_or_url(output)
    if is_url(target) and mode == "virtual":
        raise PlanError(
            f'{target}: mode="virtual" needs a local file, since it refers to its sources: pass mode="copy"',
            path=target,
        )
    refuse_special(target)
    if exists == "fail" and os.path.lexists(target) and not dry_run:
        message = f'{target!r} exists: choose another name, or allow exists="replace"'
        raise ExistsError(message, path=target)
    if check not in ("sample", "full"):
        raise PlanError(f'check={check!r} is not valid: use "sample" or "full"')
    check_incomplete(incomplete)
    with _advising_repair(sources, target), contextlib.ExitStack() as views:
        parts = Parts(progress, None, _weights(mode, order_by, check))
        # A virtual merge does not copy rows, so they are read and hashed by the inspection.
        plan = plan_merge(
            sources,
            target,
            mode=mode,
            order_by=order_by,
            on_mismatch=on_mismatch,
            check_rows=mode == "virtual" and not dry_run,
            views=views,
            parts=parts,
        )
        if dry_run:
            return plan
        if plan.findings:
            message = f"the merged run is not complete: {'; '.join(plan.findings)}"
            advice = "complete the run"
            report_incomplete(message, incomplete, CorruptDataError, path=plan.root, advice=advice)
        if plan.left_out:
            message = "; ".join(f"{name}: {reason}" for name, reason in plan.left_out.items())
            warn_user(f"left out of {target!r}: {message}")
        compared, size_bytes = _write(plan, exists, parts, check, executor)
    return MergeReport(
        output=shown(target),
        mode=plan.mode,
        rows={one.name: one.rows for one in plan.datasets if one.has_rows},
        sources=tuple(source.path for source in plan.sources),
        ways={one.name: f"{one.strategy}: {one.reason}" for one in plan.datasets},
        dropped_attributes=plan.dropped_attributes,
        bytes=size_bytes,
        seconds=time.monotonic() - start,
        findings=plan.findings + plan.earlier_findings,
        order_by=plan.order_by,
        left_out=plan.left_out,
        check=check,
        compared=compared,
    )


@contextlib.contextmanager
def _advising_repair(sources: Sources, output: str) -> Iterator[None]:
    """Name the command that repairs a run folder in an error about damage in it."""
    try:
        yield
    except (CorruptDataError, FormatError) as error:
        path, is_damage = error.path, isinstance(error, CorruptDataError) or "not an HDF5 file" in str(error)
        if not isinstance(sources, (str, os.PathLike)) or not is_damage or path in (None, output):
            raise
        run = os.path.join(sources, "")
        if not os.path.isdir(run) or not os.path.realpath(path or "").startswith(f"{os.path.realpath(run)}/"):
            raise
        message = f"{error}; or run `{repair_run_command(run)}` and merge the commits that are whole"
        raise type(error)(message, path=path, offset_bytes=error.offset_bytes, record=error.record) from error


def _weights(mode: Mode, order_by: str, check: Extent) -> dict[str, int]:
    """Return the parts of a merge for its progress, by their usual duration."""
    keyed = order_by not in ("rank", "step")
    return {
        "inspect": 8 if mode == "virtual" else 1,
        "sort keys": 1 if keyed else 0,
        "copy": 1 if mode == "virtual" else 8,
        "put in order": 24 if keyed and mode != "virtual" else 0,
        "check": 6 if keyed else 2,
        "compare": 16 if check == "full" else 1,
        "sync to disk": 2,
    }


def _write(
    plan: MergePlan, exists: Exists, parts: Parts, check: Extent, executor: Executor | None
) -> tuple[dict[str, int], int]:
    target = plan.output
    with publish_raw(target, exists=exists) as temporary, signals_between_calls():
        temporary.deferred = True
        with temporary.failure_first(), Writeback(temporary, target) as writeback:
            with h5py.File(temporary, "w", libver=plan.versions, track_order="" in plan.orders) as file:
                checks = fill(file, plan, temporary, writeback, parts, executor)
                write_links(file, plan)
                write_provenance(file, plan)
                write_receipts(file, plan.receipts)
                checks += name_checks(file, plan)
                write_checks(file, checks)
            temporary.raise_failure()
            # The disk writes while the result is read back.
            writeback.sync()
            with h5py.File(temporary, "r") as file:
                raw = RawFile(temporary.fileno(), target, temporary.size_bytes)
                _read_back(file, raw, plan, checks, parts.begin("check"))
            let_read(temporary.fileno())
            compared = compare_with_sources(temporary.name, plan, check, parts.begin("compare"))
            synced = parts.begin("sync to disk")
            writeback.wait()
            size_bytes = temporary.size_bytes
    synced(1, 1)
    return compared, size_bytes


def _read_back(
    file: h5py.File, raw: RawFile, plan: MergePlan, checks: list[Check], progress: Progress
) -> None:
    row_bytes = {one.name: one.row_bytes for one in plan.datasets if one.has_rows}
    checks = [check for check in checks if not check.file]
    count = Count(progress, sum(check.rows * row_bytes.get(check.dataset, 0) for check in checks))
    for one in plan.datasets:
        if one.has_rows:
            dataset = file[one.name]
            if dataset.shape != (one.rows, *one.row_shape):
                raise _differs(plan, f"has shape {dataset.shape} of {one.name!r}")
            is_virtual = one.strategy == "virtual"
            if is_virtual and dataset.id.get_create_plist().get_virtual_count() < len(one.parts):
                raise _differs(plan, f"points to too few files in {one.name!r}")
    for check, difference in failed_checks(file, raw, checks):
        if difference is not None:
            raise _differs(plan, f"{difference} ({check.described})")
        count.add(check.rows * row_bytes.get(check.dataset, 0))


def _differs(plan: MergePlan, what: str) -> CorruptDataError:
    message = f"the merged file {plan.output!r} {what} and was not kept: check disk and memory, merge again"
    return CorruptDataError(message, path=plan.output)
