"""A machine that tests describe by files below a folder, for the checks of `doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.diagnosis.kernel import Kernel
from shardkeep.world import World

__all__ = ["DescribedMachine"]

GIB = 1 << 30


class DescribedMachine:
    """A kernel with the given files below `root`, and a job of some ranks on it."""

    def __init__(self, root: Path, ranks: int = 1) -> None:
        self.root = root
        self.ranks = ranks
        self.environment: dict[str, str] = {}
        self.paths: tuple[str, ...] = ()
        self.threads: tuple[str, ...] = ()

    def write(self, path: str, text: str = "") -> None:
        """Write a file below the root."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def meminfo(self, **gib: float) -> None:
        """Set values of ``/proc/meminfo`` in GiB."""
        lines = (f"{name}: {int(value * GIB / 1024)} kB\n" for name, value in gib.items())
        self.write("proc/meminfo", "".join(lines))

    def group(self, controller: str, files: dict[str, str], path: str = "job", *, version: int = 2) -> None:
        """Put this process into a control group with files."""
        top = "sys/fs/cgroup"
        if version == 2:
            self.write("proc/self/cgroup", f"0::/{path}\n")
            self.write(f"{top}/cgroup.controllers", controller)
        else:
            self.write("proc/self/cgroup", f"3:{controller}:/{path}\n0::/\n")
            top = f"{top}/{controller}"
        for name, text in files.items():
            self.write(f"{top}/{path}/{name}", text)

    def examine(
        self, check: Callable[[Subject], Iterator[Problem | Fact]]
    ) -> tuple[list[Problem], dict[str, str]]:
        """Return the problems, and the facts by their names."""
        world = World(0, self.ranks, 0, self.ranks)
        subject = Subject(
            self.paths, (".",), world, self.environment, kernel=Kernel(str(self.root)), threads=self.threads
        )
        found = list(check(subject))
        facts = {one.name: one.value for one in found if isinstance(one, Fact)}
        return [one for one in found if isinstance(one, Problem)], facts
