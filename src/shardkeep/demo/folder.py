"""The output folder: whose it is, and making it ready for a run."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from shardkeep import files
from shardkeep.demo.settings import Layout
from shardkeep.errors import DurabilityError, ExistsError

__all__ = ["claim", "machine_errors"]


@contextlib.contextmanager
def claim(output: str | os.PathLike[str]) -> Iterator[Layout]:
    """Make `output` an empty demo folder and hold it while the body runs.

    A folder that an earlier demo made is emptied of what that demo wrote (its marker file tells);
    anything else in it is left alone.

    Raises
    ------
    ExistsError
        It is a file, or a folder with other things in it and no marker.
    LockTimeoutError
        Another demo is running in it.
    DurabilityError
        It cannot be made or written.
    """
    layout = Layout(Path(output))
    root = layout.root
    if os.path.lexists(root) and not root.is_dir():
        raise ExistsError(f"{root}: is not a folder; name another one with --output", path=root)
    with machine_errors(root):
        if root.is_dir() and not layout.marker.is_file() and any(root.iterdir()):
            raise ExistsError(
                f"{root}: has other things in it and was not made by `shardkeep demo`; "
                "name a new folder with --output",
                path=root,
            )
        missing = _missing_parents(root)
        root.mkdir(parents=True, exist_ok=True)
        try:
            with files.publish(layout.marker, exists="replace") as marker:
                marker.write(json.dumps({"made by": "shardkeep demo"}).encode() + b"\n")
        except BaseException:
            for folder in missing:  # what this call made and could not use
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise
        with files.lock(layout.marker, timeout_s=0, if_unsafe="warn"):
            _empty(layout)
            layout.data.mkdir()
            layout.run.mkdir()
            yield layout


@contextlib.contextmanager
def machine_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what the operating system refuses (rights, space, I/O) into `DurabilityError`.

    Errors of Shardkeep's own tree pass through.
    """
    try:
        yield
    except OSError as error:
        from shardkeep.errors import ShardkeepError

        if isinstance(error, ShardkeepError):
            raise
        where = error.filename or os.fspath(path)
        advice = {
            errno.ENOSPC: "make room or name another folder with --output",
            errno.EDQUOT: "make room or name another folder with --output",
        }.get(error.errno or 0, "name a folder that you may write with --output")
        raise DurabilityError(f"{where}: {error.strerror or error}; {advice}", path=where) from error


def _missing_parents(root: Path) -> list[Path]:
    """Folders that ``mkdir(parents=True)`` would make, deepest first."""
    missing = []
    for folder in (root, *root.parents):
        if folder.exists():
            break
        missing.append(folder)
    return missing


def _empty(layout: Layout) -> None:
    for folder in (layout.data, layout.run):
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
    for file in (layout.checkpoint, layout.results, layout.report, layout.summary):
        file.unlink(missing_ok=True)
