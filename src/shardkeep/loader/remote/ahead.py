"""Fetching of remote shards ahead of the steps of a loader.

The steps of a rank are planned, so the shards that it will need are known, and their order. Threads fetch
them in that order into the cache of the host, a bounded number of bytes ahead of the step that is read. A
step is passed on to the engine when its shards are here. Links in the view of the process keep those shards,
and some that were read before; others stay in the cache while there is room.

The shards of the steps ahead fit in the cache together. Only a single step may need more than it holds.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from shardkeep.files.remote.cache import limit_bytes
from shardkeep.files.user_warning import warn_user
from shardkeep.loader.remote.shards import RemoteShards
from shardkeep.plan import ShardTable
from shardkeep.quantities import human_bytes

__all__ = ["FetchedAhead"]

_THREADS = 8
_AHEAD_SHARDS = 32
_AHEAD_BYTES = 512 << 20
_STEPS_AHEAD = 4096


class FetchedAhead:
    """Iterator of the steps, which returns each when its shards are here.

    Parameters
    ----------
    shards : RemoteShards
    table : ShardTable
    steps : iterator of PlannedStep
    ranks : int
        Number of ranks of this host, which read the same shards.
    release : callable
        Called with the number of a shard before it is dropped: an open descriptor would keep its bytes on
        the disk, and a shard that is fetched again is another file.
    """

    def __init__(
        self,
        shards: RemoteShards,
        table: ShardTable,
        steps: Iterator[Any],
        ranks: int,
        release: Callable[[int], object],
    ) -> None:
        self._shards, self._table, self._steps = shards, table, steps
        self._release_file = release
        self._sizes_bytes = [shards.size_bytes(number) for number in range(len(shards.infos))]
        self._total_bytes, limit = sum(self._sizes_bytes), limit_bytes()
        # Data that fit are shared by all ranks; of others each rank has its part of the cache.
        self._limit_bytes = limit if self._total_bytes <= limit else limit // ranks
        self._following: tuple[Any, list[int]] | None = None  # must wait for room
        self._queue: deque[tuple[Any, list[int]]] = deque()
        self._returned: deque[list[int]] = deque()
        self._uses: Counter[int] = Counter()  # by steps that are ahead, or were returned and are kept
        self._here: set[int] = set()
        self._failed: dict[int, BaseException] = {}
        self._asked: set[int] = set()
        self._ahead: OrderedDict[int, int] = OrderedDict()  # asked for, not needed by a returned step
        self._ahead_bytes = 0
        self._unused: OrderedDict[int, None] = OrderedDict()
        self._used_bytes, self._unused_bytes = 0, 0
        self._epoch, self._asked_in_epoch, self._again_bytes, self._has_warned = 0, set[int](), 0, False
        self._fetcher = _Fetcher(shards)

    def __iter__(self) -> FetchedAhead:
        return self

    @property
    def is_ready(self) -> bool:
        """True if the next step need not wait for a shard."""
        self._look_ahead()
        with contextlib.suppress(Empty):
            while True:
                self._receive(block=False)
        if not self._queue:
            return self._following is None
        return self._here.issuperset(self._queue[0][1])

    def keep_last(self, count: int) -> None:
        """Let all but the last `count` returned steps do without their shards."""
        while len(self._returned) > count:
            self._release(self._returned.popleft())

    def __next__(self) -> Any:
        self._look_ahead()
        if not self._queue:
            raise StopIteration
        step, numbers = self._queue[0]
        while not self._here.issuperset(numbers):
            failed = next((number for number in numbers if number in self._failed), None)
            if failed is not None:
                raise self._failed[failed]
            self._receive(block=True)
        self._queue.popleft()
        for number in numbers:
            self._ahead_bytes -= self._ahead.pop(number, 0)
        self._returned.append(numbers)
        return step

    def _receive(self, *, block: bool) -> None:
        number, error = self._fetcher.results.get(block)
        if error is None:
            self._here.add(number)
        else:
            self._failed[number] = error

    def _look_ahead(self) -> None:
        most = min(_AHEAD_BYTES, self._limit_bytes // 2)
        # The first shard has the whole bandwidth, so that the first batch is early.
        most_shards = _AHEAD_SHARDS if self._here else 1
        while not self._queue or (
            len(self._queue) < _STEPS_AHEAD and self._ahead_bytes < most and len(self._ahead) < most_shards
        ):
            if self._following is None:
                following = next(self._steps, None)
                if following is None:
                    return
                step = following.step
                records = step.records if len(step.records) else np.array([step.sample_record])
                # `np.unique` takes five times as long.
                self._following = following, sorted(set(self._table.locate(records)[0].tolist()))
            following, numbers = self._following
            added = [number for number in numbers if number not in self._uses]
            added_bytes = sum(self._sizes_bytes[number] for number in added)
            is_first = not self._queue and not self._returned
            if self._used_bytes + added_bytes > self._limit_bytes and not is_first:
                return
            self._following = None
            self._queue.append((following, numbers))
            self._uses.update(numbers)
            self._used_bytes += added_bytes
            for number in added:
                if number in self._unused:
                    del self._unused[number]
                    self._unused_bytes -= self._sizes_bytes[number]
            self._drop_unused()
            for number in added:
                if number not in self._asked:
                    self._ask(number, following.segment.epoch)

    def _ask(self, number: int, epoch: int) -> None:
        size_bytes = self._sizes_bytes[number]
        self._asked.add(number)
        self._ahead[number] = size_bytes
        self._ahead_bytes += size_bytes
        self._fetcher.calls.put(number)
        if epoch != self._epoch:
            self._epoch, self._asked_in_epoch, self._again_bytes = epoch, set(), 0
        self._again_bytes += size_bytes if number in self._asked_in_epoch else 0
        self._asked_in_epoch.add(number)
        if self._again_bytes > self._total_bytes and not self._has_warned:
            self._has_warned = True
            warn_user(
                f"each remote shard is fetched again and again, since {human_bytes(self._total_bytes)} do not"
                f" fit in the {human_bytes(self._limit_bytes)} that the cache has for this rank: allow more"
                ' with SHARDKEEP_CACHE_BYTES, or use shuffle="blocks" in place of "global"'
            )

    def _release(self, numbers: list[int]) -> None:
        for number in numbers:
            self._uses[number] -= 1
            if not self._uses[number]:
                del self._uses[number]
                self._unused[number] = None
                self._used_bytes -= self._sizes_bytes[number]
                self._unused_bytes += self._sizes_bytes[number]
        self._drop_unused()

    def _drop_unused(self) -> None:
        most = min(self._limit_bytes // 4, self._limit_bytes - self._used_bytes)
        while self._unused and self._unused_bytes > most:
            number, _ = self._unused.popitem(last=False)
            self._unused_bytes -= self._sizes_bytes[number]
            self._release_file(number)
            self._shards.drop(number)
            self._here.discard(number)
            self._asked.discard(number)


class _Fetcher:
    """Threads that fetch shards, until the object is not referenced any more."""

    def __init__(self, shards: RemoteShards) -> None:
        self.calls: SimpleQueue[int | None] = SimpleQueue()
        self.results: SimpleQueue[tuple[int, BaseException | None]] = SimpleQueue()
        stopped: list[bool] = []
        for _ in range(_THREADS):
            threading.Thread(
                target=_fetch,
                args=(shards, self.calls, self.results, stopped),
                name="shardkeep-fetch",
                daemon=True,
            ).start()
        weakref.finalize(self, _stop, self.calls, stopped)


def _stop(calls: SimpleQueue[int | None], stopped: list[bool]) -> None:
    stopped.append(True)
    for _ in range(_THREADS):
        calls.put(None)


def _fetch(
    shards: RemoteShards,
    calls: SimpleQueue[int | None],
    results: SimpleQueue[tuple[int, BaseException | None]],
    stopped: list[bool],
) -> None:
    def tick(_: int) -> None:
        if stopped:
            raise _StoppedError

    while (number := calls.get()) is not None and not stopped:
        try:
            shards.fetch(number, tick)
        except _StoppedError:
            return
        except BaseException as error:
            results.put((number, error))
        else:
            results.put((number, None))


class _StoppedError(Exception):
    """End of a thread that is not needed any more; never leaves this module."""
