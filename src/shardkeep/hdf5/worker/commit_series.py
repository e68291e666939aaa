"""Series of the commits of one rank: commits, marks of steps inside them, and rollbacks."""

from __future__ import annotations

import copy
import os
from typing import Any

from shardkeep.errors import PlanError
from shardkeep.files.leftovers import temporary_name
from shardkeep.hdf5.segments.commit_record import MarkRecord, newest_mark
from shardkeep.hdf5.segments.run_folder import segment_path
from shardkeep.hdf5.segments.series_end import write_end
from shardkeep.hdf5.worker.cut import cut_segment
from shardkeep.hdf5.worker.rank_owner import RankOwner
from shardkeep.hdf5.worker.rollback import check_checkpoint, remove_after

__all__ = ["CommitSeries"]


class CommitSeries(RankOwner):
    """Base class of `WorkerFile` with the calls that change which rows are committed."""

    def commit(
        self, *, step: int, receipt: dict[str, Any] | None = None, state: dict[str, Any] | None = None
    ) -> None:
        """Make all rows so far durable, as the state after `step`.

        Parameters
        ----------
        step : int
            At least 0 and larger than `committed_step`.
        receipt : dict, optional
            ``loader.receipt()``, the records from which the rows were made. It is kept with the commit
            and rolled back with it. The first commit of a data set of many shards also stores their names
            and sizes in the run folder, once for all ranks.
        state : dict, optional
            A small dict of JSON values from which the program continues, as ``loader.state_dict()``. It is
            `committed_state` until the next commit, and rolled back with the rows. A merge leaves it out.

        Raises
        ------
        PlanError
            The step does not come after the last one (after a restart: ``rollback`` first), or
            the receipt is not one of a loader, the state is not JSON. Nothing changed.
        DurabilityError
            The segment could not be written, synced or renamed: the commit did not happen.
        LockError
            As of `append`.

        Notes
        -----
        After a crash during this call all rows of the commit are there, or none. After it has returned,
        all are; with ``durable=False`` unless the power failed.
        """
        with self._doing("commit"):
            contents = self._contents
            record = contents.next_record(step, receipt, state, self._world_size, self._incarnation)
            self._described.add(receipt)
            self._described.store()
            with self._all_or_nothing():
                with self._segment.writing():
                    record = contents.write(self._segment.group, record)
                self._segment.seal(segment_path(self._folder, record.sequence, record.step))
                self._push()
                # An interrupt here leaves a segment of which `contents` has no record; `rollback` reads it.
                contents.committed(record)

    def mark(
        self, step: int, *, receipt: dict[str, Any] | None = None, state: dict[str, Any] | None = None
    ) -> None:
        """Mark the rows so far as those up to `step`, for a rollback to a step inside a commit.

        A mark writes nothing and is kept by the next commit. For a program that commits more often, or at
        other steps, than its checkpoints.

        Parameters
        ----------
        step : int
            Larger than `committed_step`, and not before the last mark; the same step again moves its mark.
        receipt, state : dict, optional
            As of `commit`, at this step. They are those of the rank after a rollback to the mark.

        Raises
        ------
        PlanError
            The step does not come after the last ones, the receipt is not one of a loader, the state is not
            JSON. Nothing changed.
        LockError
            As of `append`.
        """
        with self._doing("mark"):
            self._contents.mark(step, receipt, state)
            self._described.add(receipt)

    def finish(self) -> None:
        """Record that this rank ends with its newest commit, whatever the steps of other ranks.

        For ranks that do not train in step. Without it, a merge and a verification report a rank that ends
        before others as incomplete; where a rank has called it, they report each rank that has not. To open
        the rank again, to commit and to roll back continue it.

        Raises
        ------
        PlanError
            The rank has no commit, or rows that are not committed.
        DurabilityError
            The end could not be written.
        LockError
            As of `append`.
        """
        with self._doing("finish"):
            lost = self._contents.described_uncommitted()
            if self._contents.step is None or lost:
                missing = f"uncommitted rows ({', '.join(lost)})" if lost else "no commit"
                raise PlanError(f"rank {self.rank} has {missing}: call commit(step=…) before finish()")
            write_end(self._folder, self._contents.newest_crc32c, durable=self._durable)
            self._push()

    def rollback(self, *, step: int | None) -> None:
        """Remove the commits of this rank after `step`, and all rows that were not committed.

        Rows up to the newest mark that is not after `step` stay, also of the first commit after `step` and
        of the rows that were not committed: they are the commit of the marked step then. Attributes, which
        a mark does not have, stay as that commit has them.

        It also makes the object usable again after a `DurabilityError` or an interrupt. A run that
        starts again from a checkpoint needs `shardkeep.hdf5.rollback`, once, before its workers open
        their files: this method does not reach ranks that a smaller world no longer has, whose later
        rows would be merged too.

        Parameters
        ----------
        step : int or None
            The step of the checkpoint; None, for a start without a checkpoint, and -1 remove everything.

        Raises
        ------
        PlanError
            The step is not a whole number.
        DurabilityError, CorruptDataError
            A segment cannot be removed; or cannot be read afterwards.
        LockError
            As of `append`.

        Notes
        -----
        The newest segments are removed first, so after a crash in the middle a first part of the commits
        is there, and the same call completes the work. A commit that is cut at a mark has all its rows, or
        those up to the mark.
        """
        step = check_checkpoint(step)
        with self._doing("rollback", after_failure=True):
            mark = newest_mark(self._contents.marks, step)
            with self._all_or_nothing():
                if mark is not None and self._failure is None:
                    self._commit_marked(mark)
                self._segment.abort()
                if self._remote is not None and self._failure is not None:
                    self._remote.pull()  # the failed commit may have arrived, or not
                remove_after(self._folder, step, durable=self._durable)
                self._push()
                self._load()
            self._failure = None

    # -- what is there -------------------------------------------------------------------------------

    @property
    def committed_step(self) -> int | None:
        """Step of the newest commit; None before the first."""
        return self._contents.step

    @property
    def committed_state(self) -> dict[str, Any] | None:
        """Copy of the state of the newest commit; None without one."""
        return copy.deepcopy(self._contents.state)

    @property
    def committed_rows(self) -> dict[str, int]:
        """Number of committed rows of each dataset."""
        return dict(self._contents.first_row)

    @property
    def uncommitted_rows(self) -> dict[str, int]:
        """Number of rows of each dataset that a crash would lose now."""
        return self._contents.uncommitted()

    # -- inside --------------------------------------------------------------------------------------

    def _commit_marked(self, mark: MarkRecord) -> None:
        """Commit the rows up to a mark: write all under a temporary name, and cut that file."""
        contents = self._contents
        self._described.store()
        path = os.path.join(self._folder, temporary_name("segment.h5"))
        step = contents.marks[-1].step + 1
        record = contents.next_record(step, None, None, self._world_size, self._incarnation)
        with self._segment.writing():
            contents.write(self._segment.group, record)
        self._segment.seal(path)
        cut_segment(path, mark, durable=self._durable)
