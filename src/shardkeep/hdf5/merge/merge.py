"""`merge`: many files become one, whole and checked, or nothing happens."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, overload

import h5py

from shardkeep.errors import CorruptDataError, ExistsError, PlanError
from shardkeep.files.leftovers import let_read
from shardkeep.files.publish import Exists, publish_raw
from shardkeep.files.temporary_file import TemporaryFile
from shardkeep.files.user_warning import warn_user
from shardkeep.files.writeback import Writeback
from shardkeep.hdf5.merge.checks.comparison import Extent, compare_with_sources
from shardkeep.hdf5.merge.checks.table import Check, write_checks
from shardkeep.hdf5.merge.checks.verification import failed_checks
from shardkeep.hdf5.merge.copy import fill
from shardkeep.hdf5.merge.find_sources import Sources
from shardkeep.hdf5.merge.links import name_checks, write_links
from shardkeep.hdf5.merge.plan import MergePlan, Mode, plan_merge
from shardkeep.hdf5.merge.provenance import write_provenance
from shardkeep.hdf5.merge.schema.survey import OnMismatch
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.sources.receipts import write_receipts

__all__ = ["MergeReport", "merge"]

Incomplete = Literal["warn", "refuse", "allow"]


@dataclass(frozen=True)
class MergeReport:
    """What a merge did.

    Attributes
    ----------
    output : str
    mode : str
    rows : dict
        Rows of each dataset in the result.
    sources : tuple of str
        The merged files, in the order of their rows.
    ways : dict
        How each dataset was merged, and why so.
    dropped_attributes : dict
        Attributes of each dataset and group that are left out, since they differ between the sources or
        cannot be in another file.
    bytes : int
        Size of the result.
    seconds : float
    findings : tuple of str
        What of the run seems to be missing, or to be there twice: ranks of the newest commit's
        world without a commit or behind its step, commits of an earlier world that overlap the
        newest one, a list that does not begin with a rank's first commit, keys that are missing.
        Empty if all is there.
    order_by : str
        "rank", "step" or the dataset of the keys.
    left_out : dict
        Why each ``object@attribute``, link or named type cannot be in the result.
    check : str
        "sample" or "full", as in the call.
    compared : dict
        Rows of each dataset that were read back through HDF5 and compared with the sources, by value.
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

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
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
    progress: Callable[[int, int], None] | None = ...,
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
    progress: Callable[[int, int], None] | None = ...,
) -> MergePlan: ...


def merge(
    sources: Sources,
    output: str | os.PathLike[str],
    *,
    mode: Mode = "auto",
    order_by: str = "rank",
    on_mismatch: OnMismatch = "refuse",
    exists: Exists = "fail",
    incomplete: Incomplete = "warn",
    check: Extent = "sample",
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> MergeReport | MergePlan:
    """Merge the worker files of a run, or any HDF5 files, into one file.

    Parameters
    ----------
    sources : str, os.PathLike or iterable of them
        A run folder (every commit that stands), or HDF5 files, which need not be worker files: a
        pattern (``"run*/part-*.h5"``, matches sorted by name) or a list of paths and patterns.
    output : str or os.PathLike
        Appears whole and synced, or not at all.
    mode : {"auto", "copy", "virtual"}
        "copy" writes every row into the result: compressed chunks go as they are where that is
        provably safe, and are made anew where not. "virtual" writes a small file that points to
        the sources by relative paths; it is only as whole as they stay. All rows are read once:
        those of segments must have the hash of their commit, and the hash of each source is kept
        for `shardkeep.hdf5.verify`. "auto" is "copy".
    order_by : str
        "rank": by rank, then in the order of the commits; of a list, in its order. "step": by
        step, then rank. Otherwise the name of a dataset with one integer for each row: every
        dataset with as many rows in each source is put in the order of these keys, the others
        stay by rank. A key that is there twice is an error that names the ranks; missing keys
        between 0 and the greatest are a finding.
    on_mismatch : {"refuse", "promote"}
        What to do if dtypes differ. "promote" widens where no value changes
        (`shardkeep.hdf5.storage.casts`), and leaves attributes, links and named types out that some files
        lack, that differ, or that lead to another file.
    exists : {"fail", "replace"}
        What to do if there is such an output.
    incomplete : {"warn", "refuse", "allow"}
        What to do if commits of a run seem to be missing, or to be there twice, or keys are
        missing: a `RuntimeWarning` before anything is written, a `CorruptDataError`, or nothing.
        Either way ``report.findings`` has them. A run that is still going on looks like that.
    check : {"sample", "full"}
        Rows that are read back through HDF5 before the result appears, and compared with those of the
        sources by value: some of each dataset and source, or all. ``report.compared`` has their number.
    dry_run : bool
        Only look at the sources: returns the plan, which prints as a table.
    progress : callable, optional
        Called with the number of sources done and of all sources.

    Returns
    -------
    MergeReport, or with `dry_run` MergePlan

    Raises
    ------
    NotFoundError, FormatError, CorruptDataError, TruncatedFileError, LockError
        A source is missing, of another kind, unreadable, damaged (its rows do not have the hash
        of their commit, in every mode; compressed chunks of a file that is no worker's have none
        and are not decoded: `shardkeep.hdf5.verify` of the result does that), cut off, being
        written, or was changed meanwhile. Never are fill values put for it. Segments of one rank
        leave a gap or are out of order, also in a list. A key is there twice.
    SchemaError
        Dtype (byte order, enum members), row shape, the set of datasets, links or attributes differ, or
        there are rows that a merge would lose: virtual and external datasets, links to other files;
        its ``table`` says who has what. A worker that never appended to a dataset has no rows of
        it, which is no mismatch; so with attributes that it never set.
    ExistsError, DurabilityError
        The output is there, or cannot be written. Nothing is left of it.

    Notes
    -----
    The result also has the tables ``_provenance`` (`shardkeep.hdf5.merge.provenance`), ``_receipts``
    (the newest receipt of each Loader, as JSON) and ``_checks`` (`shardkeep.hdf5.merge.checks.table`).
    Before it appears it is read back and compared with what was read from the sources. Attributes
    of datasets, groups and the file are kept where all sources agree; of a rank its newest commit
    counts. What ranks wrote once (`put`) is kept as it is if equal; otherwise it becomes one row
    for each rank, and the attribute ``_ranks`` has their numbers. Of variable-length numbers and
    text, as of all other types but references, rows are kept.

    Of files that are no worker's, further names are kept: a hard link to a dataset or group stays one, a
    soft link, named types. What cannot be in another file is left out, told in ``left_out`` and by a
    `RuntimeWarning`: attributes that refer to objects, ties to dimension scales, user blocks, objects and
    attributes with a name that Shardkeep uses itself.

    At most four sources are open at a time, so ``ulimit -n`` does not matter. Workers may go on writing: what
    they committed before the call is merged; so may a collector, whose file is merged as it was durable
    a moment before, and gets nothing newer meanwhile. In the order of a key, memory is 32 bytes for each
    row, and rows that do not fit into 256 MiB go through a scratch file beside the output, which
    needs the room of the rows once more.

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
    target = os.fspath(output)
    if os.path.isdir(target):
        raise ExistsError(f"{target!r} is a folder: give the name of a file in it", path=target)
    if exists == "fail" and os.path.lexists(target) and not dry_run:
        message = f'{target!r} exists: choose another name, or allow exists="replace"'
        raise ExistsError(message, path=target)
    if check not in ("sample", "full"):
        raise PlanError(f'check={check!r} is not valid here: use "sample" or "full"')
    if incomplete not in ("warn", "refuse", "allow"):
        raise PlanError(f'incomplete={incomplete!r} means nothing here: use "warn", "refuse" or "allow"')
    with contextlib.ExitStack() as views:
        # A virtual result is made without reading rows, so they are read while the plan has them open.
        plan = plan_merge(
            sources,
            target,
            mode=mode,
            order_by=order_by,
            on_mismatch=on_mismatch,
            check_rows=mode == "virtual" and not dry_run,
            views=views,
        )
        if dry_run:
            return plan
        if plan.findings and incomplete != "allow":
            message = "; ".join(plan.findings)
            if incomplete == "refuse":
                raise CorruptDataError(f'{message}: bring it in order, or allow incomplete="warn"')
            warn_user(f"what is merged is not a whole run: {message}")
        if plan.left_out:
            message = "; ".join(f"{name}: {reason}" for name, reason in plan.left_out.items())
            warn_user(f"left out of {target!r}: {message}")
        compared = _write(plan, exists, progress, check)
    return MergeReport(
        output=target,
        mode=plan.mode,
        rows={one.name: one.rows for one in plan.datasets if one.way not in ("constant", "ranks")},
        sources=tuple(source.path for source in plan.sources),
        ways={one.name: f"{one.way}: {one.reason}" for one in plan.datasets},
        dropped_attributes=plan.dropped_attributes,
        bytes=os.path.getsize(target),
        seconds=time.monotonic() - start,
        findings=plan.findings,
        order_by=plan.order_by,
        left_out=plan.left_out,
        check=check,
        compared=compared,
    )


def _write(
    plan: MergePlan, exists: Exists, progress: Callable[[int, int], None] | None, check: Extent
) -> dict[str, int]:
    target = plan.output
    with publish_raw(target, exists=exists) as temporary:
        temporary.deferred = True
        with _hdf5_errors(temporary), Writeback(temporary, target) as writeback:
            with h5py.File(temporary, "w", libver=plan.versions) as file:
                checks = fill(file, plan, temporary, writeback, progress)
                write_links(file, plan.links, plan.groups)
                write_provenance(file, plan)
                write_receipts(file, plan.receipts)
                checks += name_checks(file, plan)
                write_checks(file, checks)
            _raise_failure(temporary)
            # The disk writes while the result is read back.
            writeback.sync()
            with h5py.File(temporary, "r") as file:
                _read_back(file, RawFile(temporary.fileno(), target, temporary.size_bytes), plan, checks)
            let_read(temporary.fileno())
            compared = compare_with_sources(temporary.name, plan, check)
            writeback.wait()
    return compared


def _read_back(file: h5py.File, raw: RawFile, plan: MergePlan, checks: list[Check]) -> None:
    for one in plan.datasets:
        dataset = file[one.name]
        if one.way in ("constant", "ranks"):
            continue
        if dataset.shape != (one.rows, *one.row_shape):
            raise _differs(plan, f"has shape {dataset.shape} of {one.name!r}")
        if one.way == "virtual" and dataset.id.get_create_plist().get_virtual_count() < len(one.parts):
            raise _differs(plan, f"points to too few files in {one.name!r}")
    for check, wrong in failed_checks(file, raw, [check for check in checks if not check.file]):
        if wrong is not None:
            raise _differs(plan, f"{wrong} ({check.described})")


def _differs(plan: MergePlan, what: str) -> CorruptDataError:
    message = f"the merged file {plan.output!r} {what} and was not kept: check disk and memory, merge again"
    return CorruptDataError(message, path=plan.output)


def _raise_failure(temporary: TemporaryFile) -> None:
    if temporary.failure is not None:
        raise temporary.failure


@contextlib.contextmanager
def _hdf5_errors(temporary: TemporaryFile) -> Iterator[None]:
    """Say what failed first: a full disk makes HDF5 stumble later over what it did not write."""
    try:
        yield
    except (OSError, RuntimeError):
        _raise_failure(temporary)
        raise
