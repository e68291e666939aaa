"""Base class of the upload of a file, with the steps that all stores have."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from shardkeep.errors import ExistsError, NotFoundError, PlanError, RemoteError, ShardkeepError
from shardkeep.files.kinds.urls import display
from shardkeep.files.remote import requests, store

__all__ = ["TOKEN", "TokenUpload", "Upload", "is_refusal", "not_exclusive", "remove"]

# Name in the metadata of an object. Azure refuses a hyphen, and nginx drops a header with an underscore.
TOKEN = "shardkeepupload"

# A slow link must not look like silence.
_SLOWEST_BYTES_PER_S = 1 << 20


def remove(url: str) -> None:
    """Remove an object; a missing one is not an error."""
    with contextlib.suppress(NotFoundError):
        requests.call(url, "remove", "rm_file")


class Upload:
    """The upload of one file; `send` it, then `place` it, or `undo` both."""

    def __init__(self, url: str, *, replace: bool) -> None:
        self.url = url
        self.replace = replace
        self._system, self._path = requests.file_system(url)
        self._source = ""
        self._size_bytes = 0
        self._may_exist = False
        self._running: set[Any] = set()
        self._stopping = False
        if not replace:
            if store.find(url) is not None:
                raise self._taken()
            self._check_exclusive()

    def send(self, source: str) -> None:
        """Send the bytes of a local file, where the store can do so before the object appears."""
        self._source, self._size_bytes = source, os.path.getsize(source)
        self._send()

    def place(self) -> None:
        """Make the object appear, and check its size.

        Raises
        ------
        ExistsError
            Another process has created it, and `replace` is false.
        """
        self._may_exist = True
        self._place()
        found = store.stat(self.url).size_bytes
        if found != self._size_bytes:
            raise RemoteError(
                f"{display(self.url)} has {found:,} bytes after the upload of {self._size_bytes:,}: another"
                " process has replaced it, or the store has cut it; write it again",
                path=display(self.url),
            )

    def undo(self) -> None:
        """Remove what was sent; an object that replaced another one stays."""
        self._stopping = False
        # Before the temporary name is removed, whose absence would look like a rename.
        is_ours = self._may_exist and not self.replace and self._is_ours()
        self._abort()
        if is_ours:
            remove(self.url)

    # -- of one kind of store ----------------------------------------------------------------------------

    def _check_exclusive(self) -> None:
        """Raise unless the store can create an object that no other process creates."""

    def _send(self) -> None:
        """Send the bytes, without effect on the final name."""

    def _place(self) -> None:
        raise NotImplementedError

    def _abort(self) -> None:
        """Remove what `_send` has sent."""

    def _is_ours(self) -> bool:
        """Return True if the object was certainly created by this upload."""
        return False

    # -- for all ---------------------------------------------------------------------------------------

    def _taken(self) -> ExistsError:
        shown = display(self.url)
        return ExistsError(f'{shown} exists: choose another name, or allow exists="replace"', path=shown)

    def _call(self, what: str, make: Callable[[], Any], *, size_bytes: int = 0) -> Any:
        """Return the result of a call, or of a coroutine in the loop of the back end, with a time limit."""

        def attempt(limit_s: float) -> Any:
            limit_s += size_bytes / _SLOWEST_BYTES_PER_S
            if not self._system.async_impl:
                return requests._in_thread(make, limit_s)
            return self._in_loop(make, limit_s)

        return requests.repeated(self.url, what, attempt)

    def _in_loop(self, make: Callable[[], Any], limit_s: float) -> Any:
        import asyncio

        # Cancelled after an interrupt or in silence: the object must not appear later.
        future = asyncio.run_coroutine_threadsafe(make(), self._system.loop)
        self._running.add(future)
        ended: SimpleQueue[Any] = SimpleQueue()
        future.add_done_callback(ended.put)
        try:
            if self._stopping:
                future.cancel()
            ended.get(timeout=limit_s)
        except Empty:
            future.cancel()
            raise requests._SilentError from None
        except BaseException:
            future.cancel()
            raise
        finally:
            self._running.discard(future)
        return future.result()

    @contextlib.contextmanager
    def _stopping_others(self) -> Iterator[None]:
        """After an error or interrupt in the body, end the calls of other threads until `undo`."""
        try:
            yield
        except BaseException:
            self._stopping = True
            for future in list(self._running):
                future.cancel()
            raise


class TokenUpload(Upload):
    """Upload of an object with a token in its metadata, by which its own upload recognises it."""

    def __init__(self, url: str, *, replace: bool) -> None:
        self._token = secrets.token_hex(16)
        super().__init__(url, replace=replace)

    def _create(self) -> None:
        """Create the object with the token."""
        raise NotImplementedError

    def _metadata(self) -> Mapping[str, str]:
        """Return the metadata of the object."""
        raise NotImplementedError

    def _place(self) -> None:
        try:
            self._create()
        except ShardkeepError as error:
            # The answer to an earlier attempt may be lost: then the object is there, and it is ours.
            if not self._is_ours():
                if is_refusal(error) and not self.replace:
                    raise self._taken() from None
                raise

    def _is_ours(self) -> bool:
        try:
            return self._metadata().get(TOKEN) == self._token
        except NotFoundError:
            return False


def is_refusal(error: ShardkeepError) -> bool:
    """Return True if the store has answered that the object exists."""
    return isinstance(error, ExistsError) or (isinstance(error, RemoteError) and error.status in (409, 412))


def not_exclusive(url: str, why: str) -> PlanError:
    """Return the error for a store that does not create an object exclusively."""
    shown = display(url)
    return PlanError(
        f'{shown}: exists="fail" cannot be kept, since this store {why}: pass exists="replace", and a name'
        " that no other process writes",
        path=shown,
    )
