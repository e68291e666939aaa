"""Damage for the tests of `verify`, and shards to damage."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

from shardkeep.tfrecord import ShardWriter, Writer

__all__ = ["DAMAGE", "close_folder", "flip", "records", "shards"]


def records(path: Path, count: int = 100, compression: str | None = None) -> Path:
    with Writer(path, compression=compression) as writer:
        for i in range(count):
            writer.write(b"record %d" % i * 10)
    return path


def shards(folder: Path, count: int = 4, *, name: str = "t", suffix: str = "", each: int = 50) -> list[Path]:
    pattern = str(folder / f"{name}-{{shard:05d}}-of-{{shards:05d}}{suffix}")
    with ShardWriter(pattern, shards=count) as writer:
        for i in range(count * each):
            writer.write(b"record %d" % i)
    return sorted(folder.glob(f"{name}-*-of-{count:05d}{suffix}"))


def flip(path: Path, offset: int = 3) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)


def _hole(path: Path) -> None:
    path.write_bytes(bytes(512) + path.read_bytes()[512:])


def _no_bytes(path: Path) -> None:
    os.truncate(path, 0)


def _page(path: Path) -> None:
    path.write_text("<html><body>404 Not Found</body></html>")


def _pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 12\n")


def _cut(path: Path) -> None:
    os.truncate(path, 7)


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(1000))


def _text(path: Path) -> None:
    path.write_text("disk full\n")


def _damaged_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = range(100)
    flip(path)


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/at/all")


# Name: what it does, and the kind of the finding.
DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a flipped bit": (flip, "damage"),
    "a hole of zero bytes": (_hole, "damage"),
    "nothing but zero bytes": (_zeros, "damage"),
    "a cut in the first header": (_cut, "truncated"),
    "no bytes": (_no_bytes, "empty"),
    "a page": (_page, "replaced"),
    "a pointer": (_pointer, "replaced"),
    "a message": (_text, "replaced"),
    "a damaged HDF5 file": (_damaged_hdf5, "damage"),
    "a dangling link": (_dangling, "missing"),
}


def close_folder(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """Refuse to list a folder, as for a user without the right to read it; root may list all."""

    def refusing(call: Callable[[str], Any]) -> Callable[[str], Any]:
        def refuse(path: str) -> Any:
            if path == folder:
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return call(path)

        return refuse

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
