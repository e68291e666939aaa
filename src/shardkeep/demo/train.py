"""The parent's half of the training: steps, checkpoints, the kill, and going on after it."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shardkeep import hdf5
from shardkeep.demo import checkpoint, messages
from shardkeep.demo.console import Watch
from shardkeep.demo.crew import Crew
from shardkeep.demo.data import CLASSES, IMAGE_VALUES, Packed
from shardkeep.demo.model import Classifier
from shardkeep.demo.report import Death
from shardkeep.demo.settings import Kill, Layout, Settings
from shardkeep.errors import InternalError, ShardkeepError

__all__ = ["Tick", "Training", "train"]

_NO_GRADIENT = np.empty(0, np.float32)


@dataclass
class Tick:
    """One step as it happened; a step that was lost and redone has happened twice.

    Attributes
    ----------
    step, epoch : int
        Number of the step in the run (from 1) and of its epoch (from 0).
    world_size : int
        Ranks at work.
    parts : dict
        What each rank read, by rank; the gradients are gone from it.
    lost : bool
        Nothing of it stands: it came after the checkpoint that the run went back to.
    """

    step: int
    epoch: int
    world_size: int
    parts: dict[int, messages.Contribution]
    lost: bool = False

    @property
    def rows(self) -> int:
        """Records used by all ranks."""
        return sum(part.rows for part in self.parts.values())

    @property
    def loss(self) -> float:
        """Mean cross entropy over `rows`, in nats; not a number without any."""
        return sum(part.loss_sum for part in self.parts.values()) / self.rows if self.rows else math.nan


@dataclass
class Training:
    """What happened.

    Attributes
    ----------
    ticks : list of Tick
        In the order they happened.
    deaths : list of Death
    busy_s : float
        Time spent in steps and checkpoints, without starting processes.
    open_files : int
        Peak number of open descriptors of any one worker.
    """

    ticks: list[Tick] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    busy_s: float = 0.0
    open_files: int = 0

    @property
    def steps(self) -> int:
        """Steps that stand."""
        return sum(not tick.lost for tick in self.ticks)

    @property
    def images_per_second(self) -> float:
        """Records that went through the model, redone ones included, by `busy_s`."""
        return sum(tick.rows for tick in self.ticks) / self.busy_s if self.busy_s else 0.0


def train(layout: Layout, packed: Packed, settings: Settings, watch: Watch) -> Training:
    """Train to the end, with the kills that `settings` asks for.

    Every restart reads the checkpoint from its file, forgets what workers committed after it, and
    starts one worker fewer than before (never none).

    Raises
    ------
    ShardkeepError
        A worker died that the demo had not killed, or sent an error of its own.
    """
    return _Run(layout, packed, settings, watch).to_the_end()


class _Run:
    def __init__(self, layout: Layout, packed: Packed, settings: Settings, watch: Watch) -> None:
        self.layout, self.packed, self.settings, self.watch = layout, packed, settings, watch
        self.kills = list(settings.planned_kills(packed.records))
        self.killed: Kill | None = None
        self.died_s = 0.0
        self.started_s = time.monotonic()
        self.training = Training()

    def to_the_end(self) -> Training:
        model = Classifier(
            inputs=IMAGE_VALUES, hidden=self.settings.hidden, classes=CLASSES, seed=self.settings.seed
        )
        checkpoint.publish(
            self.layout.checkpoint,
            checkpoint.Checkpoint(0, None, model.parameters, np.zeros_like(model.parameters)),
        )
        size = self.settings.workers
        while True:
            with Crew([self._assignment(rank, size) for rank in range(size)]) as crew:
                dead = self._steps(crew)
                if not dead:
                    return self.training
                pids = self._pids_of_the_killed(crew, dead)
            size_before, size = size, max(1, size - len(pids))
            start = checkpoint.load(self.layout.checkpoint).step
            hdf5.rollback(self.layout.run, step=start)
            self._count_losses(pids, start, size_before, size)

    def _assignment(self, rank: int, size: int) -> messages.Assignment:
        return messages.Assignment(
            rank=rank,
            world_size=size,
            settings=self.settings,
            shards=tuple(map(str, self.packed.train)),
            records=self.packed.records,
            run_dir=str(self.layout.run),
            checkpoint=str(self.layout.checkpoint),
            started_s=self.started_s,
        )

    # -- one world, until its end or a death -----------------------------------------------------

    def _steps(self, crew: Crew) -> tuple[int, ...]:
        """Train until the end, or until ranks are dead: those."""
        ready = crew.gather(messages.Ready)
        if ready.dead:
            return ready.dead
        if len(set(ready.said.values())) != 1:
            raise InternalError(f"the ranks do not agree on where they stand: {ready.said}")
        begin = ready.said[0].step
        end = begin + ready.said[0].steps
        self.watch.steps(begin, end)
        since_s = time.monotonic()
        try:
            for step in range(begin + 1, end + 1):
                if dead := self._step(crew, step, last=step == end):
                    return dead
            finished = crew.gather(messages.Finished)
            self._note_open_files(finished.said)
            return finished.dead
        finally:
            self.training.busy_s += time.monotonic() - since_s

    def _step(self, crew: Crew, step: int, *, last: bool) -> tuple[int, ...]:
        parts = crew.gather(messages.Contribution, kill=self._victim(step, "computing"))
        tick = self._note_tick(crew, step, parts.said)
        if parts.dead:
            return parts.dead
        commit = last or self.settings.is_checkpoint(step)
        gradient = np.zeros_like(parts.said[0].gradient_sum)
        for part in parts.said.values():  # in the order of the ranks: float addition is not associative
            gradient += part.gradient_sum
        crew.broadcast(messages.Average(gradient / max(1, tick.rows), commit))
        if not commit:
            return ()
        committed = crew.gather(messages.Committed, kill=self._victim(step, "publishing"))
        self._note_open_files(committed.said)
        if committed.dead:
            return committed.dead
        if any(told.loader_state != committed.said[0].loader_state for told in committed.said.values()):
            raise InternalError(f"step {step}: the loader states of the ranks differ")
        crew.send(0, messages.Publish(step))
        return crew.gather(messages.Published, ranks=[0]).dead

    def _victim(self, step: int, moment: str) -> int | None:
        for kill in self.kills:
            if (kill.step, kill.moment) == (step, moment):
                self.kills.remove(kill)
                self.killed = kill
                return kill.rank
        return None

    def _note_tick(self, crew: Crew, step: int, parts: Mapping[int, messages.Contribution]) -> Tick:
        light = {rank: dataclasses.replace(part, gradient_sum=_NO_GRADIENT) for rank, part in parts.items()}
        tick = Tick(step, next(iter(parts.values())).epoch if parts else 0, crew.size, light)
        self.training.ticks.append(tick)
        self._note_open_files(parts)
        if self.training.deaths and not self.training.deaths[-1].away_s:
            away_s = time.monotonic() - self.died_s
            self.training.deaths[-1] = dataclasses.replace(self.training.deaths[-1], away_s=away_s)
        self.watch.step(step, tick.epoch, tick.loss)
        return tick

    def _note_open_files(
        self, told: Mapping[int, messages.Contribution | messages.Committed | messages.Finished]
    ) -> None:
        self.training.open_files = max(
            [self.training.open_files, *(said.open_files for said in told.values())]
        )

    # -- after a death -----------------------------------------------------------------------------

    def _pids_of_the_killed(self, crew: Crew, dead: tuple[int, ...]) -> dict[int, int]:
        """Pids of the dead by rank, if the demo killed them; an error otherwise."""
        self.died_s = time.monotonic()
        pids = {rank: crew.pids[rank] for rank in dead}
        for rank, pid in pids.items():
            if self.killed is None or self.killed.rank != rank:
                step = self.training.ticks[-1].step if self.training.ticks else 0
                raise ShardkeepError(
                    f"worker {rank} (pid {pid}) {crew.how_it_ended(rank)} at step {step}, and not by the "
                    "demo; look for the out-of-memory killer in `dmesg`, or try fewer --workers"
                )
        return pids

    def _count_losses(self, pids: Mapping[int, int], start: int, before: int, after: int) -> None:
        killed, self.killed = self.killed, None
        assert killed is not None
        lost = [tick for tick in self.training.ticks if tick.step > start and not tick.lost]
        for tick in lost:
            tick.lost = True
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
                lost_rows=sum(tick.rows for tick in lost),
            )
            self.training.deaths.append(death)
            self.watch.died(death)
