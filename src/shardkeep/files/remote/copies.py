"""Functions that read local files, called with URLs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

from shardkeep._paths_in_messages import shown, with_texts
from shardkeep.errors import NotFoundError, PlanError
from shardkeep.files.kinds.data_names import is_bare_shard, kind_of_name
from shardkeep.files.kinds.kind import HEAD_BYTES
from shardkeep.files.kinds.urls import (
    display,
    is_pattern,
    is_url,
    join_url,
    path_or_url,
    split_url,
    url_name,
    url_parent,
)
from shardkeep.files.leftovers import find_companion
from shardkeep.files.remote.cache import View, limit_bytes, require_room
from shardkeep.files.remote.store import ObjectInfo, concurrently, list_objects, list_tree, read, stat
from shardkeep.files.remote.worker_copies import FetchingExecutor

__all__ = ["Copies", "accepts_urls", "common_parent", "local_copy", "matching", "with_urls"]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def accepts_urls(
    *arguments: str, folders: bool = False, one_by_one: bool = False
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Return a decorator: a function of paths that only reads accepts URLs and patterns of URLs too.

    The function is called with the paths of local copies, which stay in the cache until it returns, and an
    iterator that it returns has ended. Reports, errors and warnings have the URLs. The workers of an argument
    ``executor`` make the copies that their tasks read themselves (`FetchingExecutor`).

    Parameters
    ----------
    *arguments : str
        Names of the arguments: a path, or an iterable of them.
    folders : bool
        The function takes folders, too.
    one_by_one : bool
        The function reads TFRecord files, and with an executor HDF5 files too, while they are
        `shardkeep.files.remote.cache.present`. So they need not fit in the cache together, and those that
        only the workers of an executor read are not fetched by this process.
    """

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        @functools.wraps(function)
        def wrapper(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            bound = _signature(function).bind(*args, **kwargs)
            executor = bound.arguments.get("executor")
            copies = Copies(folders=folders, one_by_one=one_by_one, by_workers=executor is not None)
            for name in arguments:
                if name in bound.arguments:
                    bound.arguments[name] = copies.of(bound.arguments[name])
            if not copies.views:
                return function(*bound.args, **bound.kwargs)
            if isinstance(executor, Executor):
                bound.arguments["executor"] = FetchingExecutor(executor, copies.views, copies.objects)
            result: Any
            try:
                result = function(*bound.args, **bound.kwargs)
                if dataclasses.is_dataclass(result):
                    result = with_urls(result)
            except BaseException:
                copies.close()
                raise
            if isinstance(result, Iterator):
                result = _until_the_end(result, copies)
            else:
                copies.close()
            return result  # type: ignore[no-any-return]

        return wrapper

    return decorate


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _until_the_end(items: Iterator[Any], copies: Copies) -> Iterator[Any]:
    try:
        yield from items
    finally:
        copies.close()


def local_copy(url: str) -> tuple[str, View]:
    """Return the path of a local copy of an object, and the view that keeps it while it is referenced."""
    info = stat(url)
    view = View(url_parent(url))
    return view.fetch(info), view


class Copies:
    """Local copies for the arguments of a call, and the objects of all, by the paths of the copies."""

    def __init__(self, *, folders: bool, one_by_one: bool = False, by_workers: bool = False) -> None:
        self.views: list[View] = []
        self.objects: dict[str, ObjectInfo] = {}
        self._folders, self._one_by_one, self._by_workers = folders, one_by_one, by_workers

    def of(self, paths: Any) -> Any:
        """Return the argument with paths of local copies in place of URLs."""
        if isinstance(paths, (str, bytes, os.PathLike)):
            if not is_url(paths):
                return paths
            found = self._copied([paths])
            return found if is_pattern(str(paths)) else found[0]
        is_data = isinstance(paths, dict) or hasattr(paths, "dtype")  # of `pack`
        is_data = is_data or hasattr(paths, "read")  # an open file, whose lines are not paths
        if is_data or not isinstance(paths, Iterable):
            return paths
        listed = list(paths) if isinstance(paths, Iterator) else paths
        return self._copied(list(listed)) if any(is_url(one) for one in listed) else listed

    def close(self) -> None:
        """Let the cache remove the copies."""
        for view in self.views:
            view.close()

    def _copied(self, paths: list[Any]) -> list[Any]:
        found: list[Any] = []
        wanted: list[ObjectInfo] = []
        for path in paths:
            url = path_or_url(path) if is_url(path) else None
            if url is None:
                found.append(path)
                continue
            infos, folder = self._infos(url)
            wanted += infos
            found.append(infos if folder is None else url.rstrip("/"))
        folders = [join_url(one, ".") for one in found if isinstance(one, str) and is_url(one)]
        view = View(common_parent([*folders, *(info.url for info in wanted)]))
        self.views.append(view)
        self.objects.update((view.path(info.url), info) for info in wanted)
        later = self._fetched_later(wanted)
        wanted = [info for info in wanted if info not in later]
        largest = [] if self._by_workers else sorted(later, key=lambda info: info.size_bytes)[-1:]
        require_room([*wanted, *largest])
        unnamed = [info for info in later if kind_of_name(url_name(info.url)) is None]
        heads = dict(zip(unnamed, concurrently((_head, info) for info in unnamed), strict=True))
        for info in later:
            view.reserve(info, heads.get(info, b""))
        concurrently((view.fetch, info) for info in wanted)
        local: list[Any] = []
        for one in found:
            if isinstance(one, list):
                local += [view.path(info.url) for info in one]
            else:
                local.append(view.path(one) if is_url(one) and one != view.url else one)
        return [view.folder if is_url(one) else one for one in local]

    def _fetched_later(self, infos: Sequence[ObjectInfo]) -> set[ObjectInfo]:
        """Return the objects that are only fetched while the function reads them."""
        if not self._one_by_one:
            return set()
        if not self._by_workers and sum(info.size_bytes for info in infos) <= limit_bytes():
            return set()
        return {info for info in infos if info.size_bytes and self._is_data(url_name(info.url))}

    def _is_data(self, name: str) -> bool:
        kind = kind_of_name(name)
        return kind is not None or is_bare_shard(name) if self._by_workers else kind == "tfrecord"

    def _infos(self, url: str) -> tuple[list[ObjectInfo], str | None]:
        """Return the objects of a URL, and the URL if it is that of a folder."""
        if is_pattern(url):
            infos = matching(url)
            return infos, None
        try:
            return [stat(url)], None
        except NotFoundError:
            infos = list_tree(url) if self._folders else []
            if not infos:
                raise
            return infos, url


def _head(info: ObjectInfo) -> bytes | memoryview:
    """Return the bytes that show the kind of an object whose name does not."""
    stop = min(HEAD_BYTES, info.size_bytes)
    return read(info.url, 0, stop, version=info.version, whole=stop == info.size_bytes)


def matching(pattern: str) -> list[ObjectInfo]:
    """Return the objects that match a pattern, without those that accompany data.

    Raises
    ------
    NotFoundError
        There is none.
    """
    infos = list_objects(pattern)
    if not find_companion(split_url(pattern)[1]):
        infos = [info for info in infos if not find_companion(split_url(info.url)[1])]
    if not infos:
        shown_pattern = display(pattern)
        raise NotFoundError(f"{shown_pattern}: no object matches this pattern", path=shown_pattern)
    return infos


def common_parent(urls: list[str]) -> str:
    """Return the URL of the last folder that is above all objects.

    Raises
    ------
    PlanError
        They are in different stores or buckets.
    """
    first = url_parent(urls[0])
    for url in urls[1:]:
        while first != url_parent(url) and not url_parent(url).startswith(first.rstrip("/") + "/"):
            above = url_parent(first)
            if above == first:
                both = f"{display(urls[0])} and {display(url)}"
                raise PlanError(f"{both} are in different stores: pass them in two calls", path=display(url))
            first = above
    return first


def with_urls(value: Any) -> Any:
    """Return a report in which the paths of local copies are URLs."""
    return with_texts(value, shown)
