"""A recorder of disk operations that builds the files that a kill or a power cut could leave."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Disk"]


@dataclass
class _Operation:
    kind: str  # "write", "resize", "make", "remove", "sync", "folder", "said"
    name: str = ""
    offset: int = 0
    data: bytes = b""
    said: object = None


class Disk:
    """The operations on files through `os`, and the files after a crash in between.

    Parameters
    ----------
    monkeypatch : pytest.MonkeyPatch
        Its patches end the recording.
    """

    def __init__(self, monkeypatch) -> None:
        self.operations: list[_Operation] = []
        self._names: dict[int, str] = {}
        real = {
            name: getattr(os, name)
            for name in ("open", "pwrite", "ftruncate", "unlink", "fsync", "fdatasync")
        }

        def opened(path, flags, *args, **options):
            name = os.fspath(path)
            is_new = flags & os.O_CREAT and not os.path.exists(name)
            fd = real["open"](path, flags, *args, **options)
            if os.path.isfile(name):
                self._names[fd] = os.path.basename(name)
                if is_new:
                    self._add("make", fd)
            else:
                self._names.pop(fd, None)
            return fd

        def pwrite(fd, data, offset):
            done = real["pwrite"](fd, data, offset)
            self._add("write", fd, offset, bytes(memoryview(data)[:done]))
            return done

        def ftruncate(fd, size):
            real["ftruncate"](fd, size)
            self._add("resize", fd, size)

        def unlink(path, *args, **options):
            real["unlink"](path, *args, **options)
            self.operations.append(_Operation("remove", os.path.basename(path)))

        def sync(which):
            def synced(fd):
                real[which](fd)
                if fd in self._names:
                    self._add("sync", fd)
                else:
                    self.operations.append(_Operation("folder"))

            return synced

        for name, function in (
            ("open", opened),
            ("pwrite", pwrite),
            ("ftruncate", ftruncate),
            ("unlink", unlink),
        ):
            monkeypatch.setattr(os, name, function)
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, sync(name))

    def say(self, what: object) -> None:
        """Record a promise to the outside, which a later crash must not break."""
        self.operations.append(_Operation("said", said=what))

    def _add(self, kind: str, fd: int, offset: int = 0, data: bytes = b"") -> None:
        if fd in self._names:
            self.operations.append(_Operation(kind, self._names[fd], offset, data))

    def crash(self, count: int, folder: Path, *, power_cut: random.Random | None = None) -> object:
        """Build the files after the first `count` operations; return what was said last.

        With `power_cut`, what was not synced is there or not, by chance; of the last write of a kill
        a first part is there.
        """
        done = self.operations[:count]
        names: dict[str, list[_Operation]] = {}
        said = None
        for number, one in enumerate(done):
            if one.kind == "said":
                said = one.said
            elif one.kind == "make":
                names[one.name] = []
            elif one.kind == "remove":
                # It may come back, as it was: the folder was not synced.
                later = done[number:]
                stays = power_cut is not None and not any(other.kind == "folder" for other in later)
                if not (stays and power_cut.random() < 0.5):
                    names.pop(one.name, None)
            elif one.name in names:
                names[one.name].append(one)
        for name, operations in names.items():
            if power_cut is not None:
                operations = self._survivors(operations, power_cut)
            self._build(folder / name, operations)
        return said

    def _survivors(self, operations: list[_Operation], chance: random.Random) -> list[_Operation]:
        synced = max((number for number, one in enumerate(operations) if one.kind == "sync"), default=-1)
        kept = operations[: synced + 1]
        for one in operations[synced + 1 :]:
            if chance.random() < 0.5:
                kept.append(one)
            elif one.kind == "write" and chance.random() < 0.3:
                part = one.data[: chance.randrange(len(one.data) + 1)]
                kept.append(_Operation("write", one.name, one.offset, part))
        return kept

    def _build(self, path: Path, operations: list[_Operation]) -> None:
        with open(path, "w+b") as file:
            for one in operations:
                if one.kind == "write":
                    file.seek(one.offset)
                    file.write(one.data)
                elif one.kind == "resize":
                    file.flush()
                    os.truncate(file.fileno(), one.offset)
