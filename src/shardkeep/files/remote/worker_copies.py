"""Local copies for the tasks of an executor, whose workers may be on other hosts.

An item of work names copies by their paths in a view of the driver. The call that goes to a worker has the
objects of these paths, with their versions. The worker fetches them into a view in the cache of its host,
which may be that of the driver, and passes the paths in this view to the task. The view exists until the
tasks of the call have ended.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

from shardkeep._paths_in_messages import with_texts
from shardkeep.errors import ShardkeepError
from shardkeep.files.remote.cache import View
from shardkeep.files.remote.store import ObjectInfo, concurrently

__all__ = ["FetchingExecutor"]

# Before a path of the driver's view: a worker does not look for a URL before it runs a task.
_DRIVER = "driver://"


class _Wanted(NamedTuple):
    """Objects of one view of the driver, each with True if it is only reserved there."""

    folder: str
    url: str
    objects: list[tuple[ObjectInfo, bool]]


class FetchingExecutor(Executor):
    """Executor for `Work` whose workers fetch the copies that their items name.

    Parameters
    ----------
    executor : Executor
    views : sequence of View
        Those of the driver.
    objects : mapping of str to ObjectInfo
        The object at each path in the views.
    """

    def __init__(self, executor: Executor, views: Sequence[View], objects: Mapping[str, ObjectInfo]) -> None:
        self._executor, self._views, self._objects = executor, views, objects
        self._paths = sorted(objects)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Submit a call of `shardkeep.files.threads.groups.perform`."""
        task, items, folder = arguments
        named: set[str] = set()

        def marked(text: str) -> str:
            for view in self._views:
                if view.folder in text:
                    named.add(text)
                    return text.replace(view.folder, _DRIVER + view.folder)
            return text

        items = [with_texts(item, marked) for item in items]
        paths = {path for name in named for path in self._at(name)}
        wanted = [
            _Wanted(
                view.folder,
                view.url,
                [
                    (self._objects[path], path in view.reserved)
                    for path in sorted(paths)
                    if path.startswith(view.folder)
                ],
            )
            for view in self._views
        ]
        return self._executor.submit(_perform, function, task, items, folder, wanted, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)  # the number of its workers

    def _at(self, name: str) -> list[str]:
        """Return a path with those that accompany it, as its redo log, or the paths in a folder."""
        first, last = (bisect.bisect_left(self._paths, name + after) for after in (".", "0"))
        return [name, *self._paths[first:last]] if name in self._objects else self._paths[first:last]


def _perform(
    perform: Callable[..., tuple[list[Any], BaseException | None]],
    task: Callable[[Any, Callable[[int], None]], Any],
    items: Sequence[Any],
    folder: str,
    wanted: Sequence[_Wanted],
) -> tuple[list[Any], BaseException | None]:
    """Run a task for each item as `perform` does, after what the items name was fetched."""
    folders: dict[str, str] = {}
    failed: dict[str, Exception] = {}

    def fetch(view: View, info: ObjectInfo, is_reserved: bool) -> None:
        path = view.path(info.url)
        try:
            view.fetch(info)
        except Exception as error:
            failed[path] = error
        else:
            if is_reserved:
                view.reserved[path] = info

    def run(item: Any, tick: Callable[[int], None]) -> Any:
        named: list[str] = []

        def here(text: str) -> str:
            for theirs, mine in folders.items():
                text = text.replace(_DRIVER + theirs, mine)
            named.append(text)
            return text

        def there(text: str) -> str:
            for theirs, mine in folders.items():
                text = text.replace(mine, theirs)
            return text

        item = with_texts(item, here)
        for path, error in failed.items():
            if any(path == name or path.startswith((f"{name}.", f"{name}/")) for name in named):
                raise error
        return with_texts(task(item, tick), there)

    with contextlib.ExitStack() as stack:
        calls: list[tuple[Any, ...]] = []
        try:
            for one in wanted:
                view = View(one.url)
                stack.callback(view.close)
                folders[one.folder] = view.folder
                calls += [(fetch, view, *each) for each in one.objects]
        except ShardkeepError as error:  # of the cache
            return [], error
        concurrently(calls)
        return perform(run, items, folder)
