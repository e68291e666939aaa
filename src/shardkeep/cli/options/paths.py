"""Files and datasets that are named on the command line: patterns, folders, and completion in a shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

__all__ = ["complete_dataset", "data_files", "is_dataset", "list_datasets", "print_datasets"]

_PATIENCE_S = 5.0


def data_files(paths: Sequence[str], *kinds: str) -> list[str]:
    """Return the files of some paths and patterns; a folder stands for its data files, at any depth.

    Parameters
    ----------
    paths : sequence of str
    *kinds : str
        "tfrecord", "hdf5": data files of these kinds are taken from folders. A file that should be one by its
        name or its siblings is taken too, so that its damage is an error.

    Raises
    ------
    NotFoundError
        A path does not exist, a pattern has no match, or a folder has no such file.
    PlanError
        A file is named twice.
    OSError
        A folder cannot be read.
    """
    from shardkeep.errors import NotFoundError
    from shardkeep.files.paths import expand
    from shardkeep.jobs.verification.inventory import take_inventory

    found: list[str] = []
    for path in expand(paths):
        if not os.path.isdir(path):
            found.append(path)
            continue
        tasks = take_inventory([path]).tasks
        for task in tasks:
            if task.kind is None and os.path.isdir(task.path):
                os.listdir(task.path)  # raises why it cannot be read
        inside = [task.path for task in tasks if task.expected in kinds or task.kind is None]
        if not inside:
            raise NotFoundError(f"{path}: no file of this folder is {' or '.join(kinds)} data", path=path)
        found += inside
    return expand(found)


def list_datasets(path: str, *, patience_s: float = 60.0) -> list[str]:
    """Return the names of the datasets of an HDF5 file; none if it cannot be read.

    HDF5 can crash or hang on a damaged file, so a child process reads it.
    """
    from shardkeep.files.child_python import child_python

    call = f"print_datasets({path!r})"
    try:
        done = subprocess.run(
            child_python("shardkeep.cli.options.paths", call), capture_output=True, timeout=patience_s
        )
    except subprocess.TimeoutExpired:
        return []
    names = done.stdout.decode("utf-8", "replace").split("\0")[:-1] if done.returncode == 0 else []
    return [name for name in names if name.isprintable()]


def is_dataset(path: str, name: str) -> bool:
    """Return True if the second of two arguments is a dataset of the first, and not another file."""
    from shardkeep.files.kinds.kind import identify

    if not os.path.isfile(path) or identify(path).name != "hdf5":
        return False
    return not os.path.exists(name) or name.lstrip("/") in list_datasets(path)


def print_datasets(path: str) -> None:
    """Write the names of the datasets of a file to standard output, each with a NUL after it."""
    from shardkeep.hdf5.sources.source import open_source

    with open_source(path) as source:
        click.echo("".join(f"{name}\0" for name in source.dataset_names()), nl=False)


def complete_dataset(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the datasets of the files on the line that begin so."""
    # The arguments are not parsed while the value of the option before them is missing.
    named = [*(context.params.get("paths") or ()), *context.args]
    paths = [path for path in named if os.path.isfile(path)]
    names = {
        name
        for path in paths
        for name in list_datasets(path, patience_s=_PATIENCE_S)
        if name.startswith(incomplete)
    }
    return [CompletionItem(name) for name in sorted(names)]
