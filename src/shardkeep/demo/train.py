"""Training in the parent process: steps, checkpoints, planned kills, and restarts after them."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shardkeep import hdf5
from shardkeep.demo import checkpoint, messages
from shardkeep.demo.console import DemoProgress
from shardkeep.demo.data import CLASSES, IMAGE_VALUES, Packed
from shardkeep.demo.model import Classifier
from shardkeep.demo.report import Death
from shardkeep.demo.settings import Kill, Layout, Settings
from shardkeep.demo.worker_pool import WorkerPool
from shardkeep.errors import InternalError, ShardkeepError

__all__ = ["StepExecution", "Training", "train"]

_NO_GRADIENT = np.empty(0, np.float32)


@dataclass
class StepExecution:
    """One execution of a step; a step that was lost and repeated has two executions.

    Attributes
    ----------
    step, epoch : int
        Number of the step in the run (from 1) and of its epoch (from 0).
    world_size : int
        Number of ranks.
    parts : dict
        Contribution of each rank, by rank, without its gradient.
    lost : bool
        True if the run was resumed from an earlier checkpoint.
    """

    step: int
    epoch: int
    world_size: int
    parts: dict[int, messages.Contribution]
    lost: bool = False

    @property
    def rows(self) -> int:
        """Number of records that all ranks used."""
        return sum(part.rows for part in self.parts.values())

    @property
    def loss(self) -> float:
        """Mean cross entropy over `rows`, in nats; NaN without rows."""
        return sum(part.loss_sum for part in self.parts.values()) / self.rows if self.rows else math.nan


@dataclass
class Training:
    """Record of a training.

    Attributes
    ----------
    executions : list of StepExecution
        Executed steps, in the order of execution.
    deaths : list of Death
    busy_s : float
        Time spent in steps and checkpoints, without the start of processes.
    open_files : int
        Largest number of descriptors that any worker had open.
    """

    executions: list[StepExecution] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    busy_s: float = 0.0
    open_files: int = 0

    @property
    def steps(self) -> int:
        """Number of steps that count."""
        return sum(not execution.lost for execution in self.executions)

    @property
    def images_per_second(self) -> float:
        """Records that were used, with repeated ones, per second of `busy_s`."""
        return sum(execution.rows for execution in self.executions) / self.busy_s if self.busy_s else 0.0


def train(layout: Layout, packed: Packed, settings: Settings, progress: DemoProgress) -> Training:
    """Train to the end, with the kills that `settings` plans.

    Every restart reads the checkpoint from its file, rolls back the rows that workers committed after it, and
    starts one worker fewer than before, at least one.

    Raises
    ------
    ShardkeepError
        A worker died that the demo had not killed, or a worker sent an error.
    """
    return _Run(layout, packed, settings, progress).run()


class _Run:
    def __init__(self, layout: Layout, packed: Packed, settings: Settings, progress: DemoProgress) -> None:
        self.layout, self.packed, self.settings, self.progress = layout, packed, settings, progress
        self.kills = list(settings.planned_kills(packed.records))
        self.killed: Kill | None = None
        self.death_s = 0.0
        self.started_s = time.monotonic()
        self.training = Training()

    def run(self) -> Training:
        model = Classifier(
            inputs=IMAGE_VALUES, hidden=self.settings.hidden, classes=CLASSES, seed=self.settings.seed
        )
        checkpoint.publish(
            self.layout.checkpoint,
            checkpoint.Checkpoint(0, None, model.parameters, np.zeros_like(model.parameters)),
        )
        size = self.settings.workers
        while True:
            with WorkerPool([self._assignment(rank, size) for rank in range(size)]) as pool:
                dead = self._train_world(pool)
                if not dead:
                    return self.training
                pids = self._pids_of_killed(pool, dead)
            size_before, size = size, max(1, size - len(pids))
            start = checkpoint.load(self.layout.checkpoint).step
            hdf5.rollback(self.layout.run, step=start)
            self._record_deaths(pids, start, size_before, size)

    def _assignment(self, rank: int, size: int) -> messages.Assignment:
        return messages.Assignment(
            rank=rank,
            world_size=size,
            settings=self.settings,
            shards=tuple(map(str, self.packed.train)),
            run_dir=str(self.layout.run),
            checkpoint=str(self.layout.checkpoint),
            started_s=self.started_s,
        )

    # -- one world, until its end or a death -----------------------------------------------------

    def _train_world(self, pool: WorkerPool) -> tuple[int, ...]:
        """Train with one world until the end or until a rank dies; return the dead ranks."""
        ready = pool.gather(messages.Ready)
        if ready.dead:
            return ready.dead
        if len(set(ready.messages.values())) != 1:
            raise InternalError(f"the ranks start at different steps: {ready.messages}")
        begin = ready.messages[0].step
        end = begin + ready.messages[0].steps
        self.progress.begin_steps(begin, end)
        since_s = time.monotonic()
        try:
            for step in range(begin + 1, end + 1):
                if dead := self._step(pool, step, last=step == end):
                    return dead
            finished = pool.gather(messages.Finished)
            self._record_open_files(finished.messages)
            return finished.dead
        finally:
            self.training.busy_s += time.monotonic() - since_s

    def _step(self, pool: WorkerPool, step: int, *, last: bool) -> tuple[int, ...]:
        parts = pool.gather(messages.Contribution, kill=self._rank_to_kill(step, "computing"))
        execution = self._record_execution(pool, step, parts.messages)
        if parts.dead:
            return parts.dead
        commit = last or self.settings.is_checkpoint(step)
        gradient = np.zeros_like(parts.messages[0].gradient_sum)
        for part in parts.messages.values():  # ordered by rank, since float addition is not associative
            gradient += part.gradient_sum
        pool.broadcast(messages.MeanGradient(gradient / max(1, execution.rows), commit))
        if not commit:
            return ()
        committed = pool.gather(messages.Committed, kill=self._rank_to_kill(step, "publishing"))
        self._record_open_files(committed.messages)
        if committed.dead:
            return committed.dead
        if any(
            message.loader_state != committed.messages[0].loader_state
            for message in committed.messages.values()
        ):
            raise InternalError(f"step {step}: the loader states of the ranks differ")
        pool.send(0, messages.Publish(step))
        return pool.gather(messages.Published, ranks=[0]).dead

    def _rank_to_kill(self, step: int, moment: str) -> int | None:
        for kill in self.kills:
            if (kill.step, kill.moment) == (step, moment):
                self.kills.remove(kill)
                self.killed = kill
                return kill.rank
        return None

    def _record_execution(
        self, pool: WorkerPool, step: int, parts: Mapping[int, messages.Contribution]
    ) -> StepExecution:
        without_gradients = {
            rank: dataclasses.replace(part, gradient_sum=_NO_GRADIENT) for rank, part in parts.items()
        }
        execution = StepExecution(
            step, next(iter(parts.values())).epoch if parts else 0, pool.size, without_gradients
        )
        self.training.executions.append(execution)
        self._record_open_files(parts)
        if self.training.deaths and not self.training.deaths[-1].away_s:
            away_s = time.monotonic() - self.death_s
            self.training.deaths[-1] = dataclasses.replace(self.training.deaths[-1], away_s=away_s)
        self.progress.finish_step(step, execution.epoch, execution.loss)
        return execution

    def _record_open_files(
        self, received: Mapping[int, messages.Contribution | messages.Committed | messages.Finished]
    ) -> None:
        self.training.open_files = max(
            [self.training.open_files, *(message.open_files for message in received.values())]
        )

    # -- after a death -----------------------------------------------------------------------------

    def _pids_of_killed(self, pool: WorkerPool, dead: tuple[int, ...]) -> dict[int, int]:
        """Return the pids of the dead ranks; raise an error if the demo did not kill them."""
        self.death_s = time.monotonic()
        pids = {rank: pool.pids[rank] for rank in dead}
        for rank, pid in pids.items():
            if self.killed is None or self.killed.rank != rank:
                step = self.training.executions[-1].step if self.training.executions else 0
                raise ShardkeepError(
                    f"worker {rank} (pid {pid}) {pool.describe_exit(rank)} at step {step}, and not by the "
                    "demo; search `dmesg` for the out-of-memory killer, or pass fewer --workers"
                )
        return pids

    def _record_deaths(self, pids: Mapping[int, int], start: int, before: int, after: int) -> None:
        killed, self.killed = self.killed, None
        assert killed is not None
        lost = [
            execution
            for execution in self.training.executions
            if execution.step > start and not execution.lost
        ]
        for execution in lost:
            execution.lost = True
        for rank, pid in pids.items():
            death = Death(
                rank=rank,
                pid=pid,
                step=killed.step,
                moment=killed.moment,
                resumed_step=start,
                workers_before=before,
                workers_after=after,
                lost_steps=len(lost),
                lost_rows=sum(execution.rows for execution in lost),
            )
            self.training.deaths.append(death)
            self.progress.report_death(death)
