"""Examination of this machine and of some files.

A check is a function that takes a `Subject` and yields `Problem` and `Fact` as it finds them; it is listed in
``_CHECKS``, in the order of the report. Each runs in its own thread, so that one that waits for a file system
that hangs delays no other: at the deadline of the subject the report has what was found until then, and a
problem that names the check which did not end. An OSError in a check becomes a note; other errors are raised.
A check reads no file to its end, imports libraries only when it runs, and h5py only in a child process.
"""

from __future__ import annotations

import contextlib
import numbers
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from shardkeep.diagnosis.examination.contents.check import check_files
from shardkeep.diagnosis.examination.file_systems.file_systems import file_systems
from shardkeep.diagnosis.examination.machine.descriptors import descriptors
from shardkeep.diagnosis.examination.machine.memory import memory, shared_memory
from shardkeep.diagnosis.examination.machine.processes import processes
from shardkeep.diagnosis.examination.report import DoctorReport, Fact, Problem
from shardkeep.diagnosis.examination.software.versions import libraries
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.errors import NotFoundError, WorldError, one_line
from shardkeep.files.paths import PathsLike, expand, path_list
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.world import World

__all__ = ["doctor"]

Check = Callable[[Subject], Iterator[Problem | Fact]]
_CHECKS: tuple[tuple[str, Check], ...] = (
    ("descriptors", descriptors),
    ("memory", memory),
    ("shared memory", shared_memory),
    ("processes", processes),
    ("file system", file_systems),
    ("libraries", libraries),
    ("files", check_files),
)
_TIME_S = 8.0
_PATIENCE_S = 1.0
_PATHS_S = 4.0
_PREFIX = "shardkeep-doctor-"
_T = TypeVar("_T")
_ORDER = ("error", "warning", "note")


@accepts_urls("paths", folders=True)
def doctor(paths: PathsLike = (), world: World | int | None = None) -> DoctorReport:
    """Examine this machine and some files as one training job would meet them.

    Nothing is changed: the scratch files that test a file system are removed before the function returns.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        Files and folders of the job, such as its shards and its run folder. Without any, the file system of
        the working directory is examined.
    world : World, int or None
        Ranks of the job. An int is their number, all on this machine unless a launcher says otherwise. None
        for those of the launcher of this process, else one rank.

    Returns
    -------
    DoctorReport
        Problems, and all that was measured, in at most ten seconds.

    Raises
    ------
    NotFoundError
        A path does not exist, or a pattern has no match.
    PlanError
        A file is named twice, or a path is a URL.
    WorldError
        `world` is not a World or a positive number.

    Examples
    --------
    >>> import shardkeep as sk
    >>> report = sk.doctor(world=8)
    >>> [problem for problem in report.problems if problem.severity == "error"]
    []
    """
    start_s = time.monotonic()
    found, problems = _world(world)
    given = path_list(paths)
    named, folders = _resolve(given)
    if not folders:
        evidence = f"the paths did not respond in {_PATHS_S:.0f} s: {', '.join(map(str, given))[:200]}"
        fix = "check the file server of these paths; until then no process can use them"
        problems.append(Problem("error", "files", evidence, fix, "df -hT"))
    subject = Subject(
        paths=named,
        folders=folders,
        world=found,
        environment=dict(os.environ),
        threads=_other_threads(),
        deadline_s=start_s + _TIME_S,
    )
    runs = [_Run(name, partial(check, subject)) for name, check in _CHECKS]
    try:
        for one in runs:
            one.start()
        for one in runs:
            one.wait(subject.left_s)
    finally:
        subject.stop.set()
        until_s = time.monotonic() + _PATIENCE_S
        for one in runs:
            one.wait(until_s - time.monotonic())
    results = [
        *problems,
        *(item for (name, _), one in zip(_CHECKS, runs, strict=True) for item in _results(name, one)),
    ]
    return DoctorReport(
        problems=tuple(
            sorted(
                (one for one in results if isinstance(one, Problem)),
                key=lambda one: _ORDER.index(one.severity),
            )
        ),
        facts=tuple(one for one in results if isinstance(one, Fact)),
        checks=tuple(name for name, _ in _CHECKS),
        paths=named,
        ranks=found.size,
        ranks_here=found.local_size,
        seconds=round(time.monotonic() - start_s, 3),
    )


class _Run(threading.Thread, Generic[_T]):
    """Work in a thread that does not keep the process alive if the work hangs."""

    def __init__(self, name: str, work: Callable[[], Iterable[_T]]) -> None:
        super().__init__(name=f"{_PREFIX}{name}", daemon=True)
        self._work = work
        self.found: list[_T] = []
        self.error: Exception | None = None
        # A `join` that a signal interrupts takes the thread for ended (python/cpython#90882), and the lock of
        # an event may stay taken: see `shardkeep.files.threads.tasks`.
        self._end: SimpleQueue[bool] = SimpleQueue()
        self.has_ended = False

    def wait(self, timeout_s: float) -> None:
        """Wait for the end, at most for a time."""
        with contextlib.suppress(Empty):
            self.has_ended = self.has_ended or self._end.get(timeout=max(0.0, timeout_s))

    def run(self) -> None:
        try:
            self.found.extend(self._work())
        except Exception as error:
            self.error = error
        finally:
            self._end.put(True)


def _results(name: str, run: _Run[Problem | Fact]) -> list[Problem | Fact]:
    """Return what a check has found; raise its error unless it is one of the system."""
    found, error = list(run.found), run.error
    if not run.has_ended:
        evidence = f"the check {name!r} did not end in {_TIME_S:.0f} s; what it waits for hangs or is slow"
        found.append(Problem("warning", name, evidence, "see which file system does not respond: df"))
    elif isinstance(error, OSError):
        evidence = f"the check {name!r} failed: {one_line(str(error))}"
        found.append(Problem("note", name, evidence, "correct the cause, and run the command again"))
    elif error is not None:
        raise error
    return found


def _world(world: World | int | None) -> tuple[World, list[Problem]]:
    """Return the world to examine, and what is wrong with the variables of the launcher."""
    problems = []
    try:
        found = World.detect()
    except WorldError as error:
        found = World()
        problems.append(
            Problem("error", "world", str(error), "correct the environment of the job's processes")
        )
    if world is None:
        return found, problems
    if isinstance(world, World):
        return world, problems
    if isinstance(world, bool) or not isinstance(world, numbers.Integral) or world < 1:
        raise WorldError(f"world must be a World or a number of ranks of at least 1, not {world!r:.80}")
    world = int(world)  # also of NumPy
    if found.size == world:
        return found, problems
    if found.source != "default":
        evidence = f"{found.source} has {found.size:,} ranks for this process, not {world:,}"
        fix = "pass the number of ranks that the job has, or unset the variables of the launcher"
        problems.append(
            Problem("warning", "world", evidence, fix, "env | grep -E 'RANK|SIZE|SLURM|TF_CONFIG'")
        )
    return World(0, world, 0, world), problems


def _resolve(given: list[str | os.PathLike[str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths, with patterns replaced by their matches, and their folders; none if they hang."""
    run = _Run("paths", lambda: [_expanded(given)])
    run.start()
    run.wait(_PATHS_S)
    if run.error is not None:
        raise run.error
    return run.found[0] if run.found else ((), ())


def _expanded(given: list[str | os.PathLike[str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    paths = tuple(expand(given)) if given else ()
    for path in paths:
        if not os.path.lexists(path):
            raise NotFoundError(f"{path}: does not exist", path=path)
    folders = [path if os.path.isdir(path) else os.path.dirname(path) or os.curdir for path in paths]
    return paths, tuple(dict.fromkeys(folders)) or (os.curdir,)


def _other_threads() -> tuple[str, ...]:
    me = threading.current_thread()
    names = (one.name for one in threading.enumerate() if one is not me)
    # Those that still wait for a file system that hangs are not the job's.
    return tuple(name for name in names if not name.startswith(_PREFIX))
