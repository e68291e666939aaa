"""Checks of the output of a repair, before anything is written: the original is never touched."""

from __future__ import annotations

import os
from collections.abc import Iterable

from shardkeep._paths_in_messages import shown
from shardkeep.errors import ExistsError, NotFoundError, PlanError
from shardkeep.files.kinds.special import refuse_special
from shardkeep.files.kinds.urls import display, is_url, join_url, path_or_url
from shardkeep.files.publish import Exists
from shardkeep.files.remote.store import list_tree
from shardkeep.files.remote.uploads import upload_to

__all__ = ["check_file", "check_folder", "check_page", "check_url", "refuse_originals"]


def check_file(path: str, output: str, exists: Exists) -> None:
    """Raise unless a new file can be written at `output`.

    Raises
    ------
    PlanError
        It is the original: by its name, by a link or by a hard link.
    ExistsError
        It exists and must not be replaced, or is a folder, a device, a pipe or a socket.
    NotFoundError
        Its folder does not exist.
    """
    refuse_originals([path], [output])
    refuse_special(output)
    _check_name(output, exists, may_exist=False)


def check_folder(path: str, output: str, exists: Exists) -> None:
    """Raise unless new files can be written into the folder `output`, which need not exist.

    Raises
    ------
    PlanError
        One folder lies in the other, or they are one.
    ExistsError
        It is not a folder, or is not empty and its files must not be replaced.
    NotFoundError
        The folder above it does not exist.
    """
    original, new = os.path.realpath(path), os.path.realpath(output)
    if _lies_in(new, original) or _lies_in(original, new):
        both = "is the damaged folder itself" if new == original else "lie in one another"
        what = f"{output!r} {both}" if new == original else f"{path!r} and {output!r} {both}"
        raise PlanError(f"{what}: repair writes new files; pass a folder elsewhere", path=output)
    if os.path.lexists(output) and not os.path.isdir(output):
        raise ExistsError(f"{output!r} is not a folder: pass a new or empty one", path=output)
    _check_name(output, exists, may_exist=os.path.isdir(output) and not os.listdir(output))


def check_url(path: str, output: str, exists: Exists, *, is_folder: bool) -> None:
    """Raise unless the new object, or new objects in a folder, can be written at the URL `output`.

    `path` is a local path; that of a local copy stands for its URL.

    Raises
    ------
    PlanError
        It is the original, or one lies in the other; or the store cannot be written.
    ExistsError
        It exists, or is not empty, and must not be replaced.
    RemoteError, MissingExtraError
        The store cannot be asked.
    """
    original, name = shown(path), display(output)
    if _lies_in(name.rstrip("/"), original) or (is_folder and _lies_in(original, name)):
        what = f"{name} and the damaged {original} are one, or lie in one another"
        raise PlanError(f"{what}: repair writes new files; pass another URL", path=name)
    if not is_folder:
        upload_to(output, replace=exists == "replace")
        return
    upload_to(join_url(output, "any"), replace=True)
    if exists == "fail" and list_tree(output):
        raise ExistsError(f'{name} is not empty: choose another name, or allow exists="replace"', path=name)


def check_page(page: str, path: str, output: str | None) -> None:
    """Raise unless the page of the report can be written: not to the original, not to the new file.

    Raises
    ------
    PlanError, ExistsError, NotFoundError
        As above.
    PlanError, MissingExtraError
        The page is a URL of a store that cannot be written.
    """
    name = path_or_url(page)
    if is_url(name):
        if _lies_in(display(name), display(path)) or (output and display(name) == display(output)):
            what = f"{display(name)} is the damaged file, in its folder, or the output"
            raise PlanError(f"{what}: pass another name for the page", path=display(name))
        upload_to(name, replace=True)
        return
    refuse_originals([path], [name], folder=path)
    if output is not None and os.path.realpath(name) == os.path.realpath(output):
        raise PlanError(f"{name!r} is the output, too: pass another name for the page", path=name)
    refuse_special(name)
    _check_name(name, "replace", may_exist=True)


def refuse_originals(paths: Iterable[str], outputs: Iterable[str], *, folder: str | None = None) -> None:
    """Raise if an output is one of the original files, also by a link, or lies in their folder.

    Raises
    ------
    PlanError
        The message has the first one.
    """
    originals = {_identity(path): path for path in paths}
    originals.pop(None, None)
    top = None if folder is None else os.path.realpath(folder)
    for output in outputs:
        original = originals.get(_identity(output))
        if original is not None:
            other = "" if original == output else f" ({original!r})"
            what = f"{output!r} is the damaged file itself{other}"
            raise PlanError(f"{what}: repair writes a new file; pass another name", path=output)
        if top is not None and _lies_in(os.path.realpath(output), top):
            what = f"{output!r} leads into the damaged folder {folder!r}"
            raise PlanError(f"{what}: repair writes new files; pass a folder elsewhere", path=output)


def _check_name(output: str, exists: Exists, *, may_exist: bool) -> None:
    if os.path.lexists(output):
        if exists == "fail" and not may_exist:
            what = "is not empty" if os.path.isdir(output) else "exists"
            message = f'{output!r} {what}: choose another name, or allow exists="replace"'
            raise ExistsError(message, path=output)
        return
    folder = os.path.dirname(output.rstrip("/")) or "."
    if not os.path.isdir(folder):
        message = f"cannot write {output!r}: there is no folder {folder!r}; create it first"
        raise NotFoundError(message, path=output)


def _lies_in(path: str, folder: str) -> bool:
    """Return True for the folder itself, too; both are real paths, or URLs."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
