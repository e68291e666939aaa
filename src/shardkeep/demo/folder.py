"""The output folder of a run: ownership check, lock, and removal of files of an earlier run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from shardkeep import files
from shardkeep.demo.settings import Layout
from shardkeep.errors import ExistsError, ShardkeepError
from shardkeep.files.durable import durability_error
from shardkeep.files.kinds.urls import local_path

__all__ = ["reserved_folder"]


@contextlib.contextmanager
def reserved_folder(output: str | os.PathLike[str]) -> Iterator[Layout]:
    """Create or empty the demo folder `output`, and lock it while the body runs.

    A folder with the marker file of an earlier demo is reused: the files that a demo writes are removed, all
    others stay.

    Raises
    ------
    ExistsError
        `output` is a file, or a folder that has files but no marker.
    LockTimeoutError
        Another demo is running in the folder.
    DurabilityError
        The folder cannot be created or written, or the body raised an error of the operating system.
    """
    layout = Layout(Path(local_path(output)))
    root = layout.root
    if os.path.lexists(root) and not root.is_dir():
        raise ExistsError(f"{root}: is not a folder; pass another one with --output", path=root)
    with _os_errors_as_durability_errors(root):
        if root.is_dir() and not layout.marker.is_file() and any(root.iterdir()):
            raise ExistsError(
                f"{root}: is not empty and was not created by `shardkeep demo`; "
                "pass a new folder with --output",
                path=root,
            )
        missing = _missing_parents(root)
        root.mkdir(parents=True, exist_ok=True)
        try:
            with files.publish(layout.marker, exists="replace") as marker:
                marker.write(json.dumps({"made by": "shardkeep demo"}).encode() + b"\n")
        except BaseException:
            for folder in missing:  # created by this call
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise
        with files.lock(layout.marker, timeout_s=0, if_unsafe="warn"):
            _empty(layout)
            layout.data.mkdir()
            layout.run.mkdir()
            yield layout


@contextlib.contextmanager
def _os_errors_as_durability_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except ShardkeepError:
        raise
    except OSError as error:
        raise durability_error("use", os.fspath(error.filename or root), error) from error


def _missing_parents(root: Path) -> list[Path]:
    """Return the folders that ``mkdir(parents=True)`` would create, deepest first."""
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
