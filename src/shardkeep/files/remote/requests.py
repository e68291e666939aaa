"""Requests to remote stores, through the file systems of fsspec.

**Options.** Credentials, endpoints and other options come from where the back ends of fsspec take them: the
environment, their own files, and the configuration of fsspec (``FSSPEC_S3_ENDPOINT_URL``).

**Time.** An operation ends with an error after ``SHARDKEEP_REMOTE_TIMEOUT_S`` seconds (120 by default),
repeats included; each attempt has a third of that. A download is divided into ranges, and each range is an
operation. Answers with a status of 5xx or 429, resets, short bodies and silence are repeated, after pauses
that double and vary at random; other answers are final.

**Processes.** A file system of fsspec has threads and connections, which do not survive a fork: it belongs to
the process that made it. A child makes its own.

**Signals.** The main thread waits for another thread, as in `shardkeep.files.threads.tasks`: an exception of
a signal handler in the main thread leaves no lock of fsspec taken.
"""

from __future__ import annotations

import inspect
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from shardkeep._extras import import_extra
from shardkeep.errors import PlanError, RemoteError
from shardkeep.files.kinds.urls import display, split_url
from shardkeep.files.remote.errors import causes, converted, silent

__all__ = ["attempt_s", "bounded", "call", "drop_listings", "file_system", "repeated", "timeout_s"]

_Result = TypeVar("_Result")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 8.0
_ATTEMPTS_IN_TIME = 3


def timeout_s() -> float:
    """Return the time limit of an operation, from ``SHARDKEEP_REMOTE_TIMEOUT_S``."""
    text = os.environ.get("SHARDKEEP_REMOTE_TIMEOUT_S") or "120"
    try:
        limit_s = float(text)
    except ValueError:
        limit_s = 0.0
    if not 0 < limit_s < float("inf"):
        raise PlanError(f"SHARDKEEP_REMOTE_TIMEOUT_S={text!r} is not valid: use a number of seconds above 0")
    return limit_s


# -- one operation -----------------------------------------------------------------------------------------


def call(
    url: str,
    what: str,
    function: str,
    *args: Any,
    repeat: bool = True,
    named: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a method of the file system of a URL with the path of its object.

    Parameters
    ----------
    url : str
    what : str
        The operation, for errors: "read", "list".
    function : str
        Name of the method, as "cat_file".
    *args, **kwargs
        Arguments after the path.
    repeat : bool
        Repeat the call after transient errors. False if the call is not idempotent.
    named : str, optional
        URL of the errors, if it differs.

    Raises
    ------
    NotFoundError, ExistsError, MissingExtraError, RemoteError
        The error of the back end; see `shardkeep.files.remote.errors`.
    """

    def attempt(limit_s: float) -> Any:
        system, path = file_system(url)
        if not system.async_impl or not hasattr(system, "_" + function):
            return _in_thread(lambda: getattr(system, function)(path, *args, **kwargs), limit_s)
        method = getattr(system, "_" + function)
        if "start" in kwargs and "start" not in inspect.signature(method).parameters:
            # The method of sshfs reads the whole object; that of all file systems opens a file and seeks.
            from fsspec.spec import AbstractFileSystem

            return _in_thread(lambda: getattr(AbstractFileSystem, function)(system, path, **kwargs), limit_s)

        def wait() -> Any:
            from fsspec.asyn import sync

            return sync(system.loop, method, path, *args, timeout=limit_s, **kwargs)

        return bounded(wait, limit_s)

    return repeated(named or url, what, attempt, repeat=repeat)


def repeated(url: str, what: str, attempt: Callable[[float], _Result], *, repeat: bool = True) -> _Result:
    """Return the result of `attempt`, which is called again after transient errors until the time limit."""
    limit_s = timeout_s()
    end_s = time.monotonic() + limit_s
    each_s = limit_s / _ATTEMPTS_IN_TIME if repeat else limit_s
    told: tuple[Exception, Exception | None] | None = None
    handled = sys.exc_info()[1]
    for number in count():
        attempt_limit_s = max(min(each_s, end_s - time.monotonic()), 0.001)
        try:
            return attempt(attempt_limit_s)
        except Exception as error:
            # One that the caller handles does not belong to this one, whose answer may be final.
            for one in causes(error):
                if one.__context__ is handled:
                    one.__context__ = None
            failure: Exception = converted(error, what, url)
            cause: Exception | None = error
            if isinstance(error, _SilentError) or type(error).__name__ == "FSTimeoutError":
                failure, cause = silent(what, url, limit_s), None
                if told is not None and attempt_limit_s < each_s:  # a short attempt says less than its elder
                    failure, cause = told
        told = failure, cause
        pause_s = min(_FIRST_PAUSE_S * 2**number, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.5)
        transient = isinstance(failure, RemoteError) and failure.transient
        if not repeat or not transient or time.monotonic() + pause_s >= end_s:
            raise failure from (None if failure is cause else cause)
        time.sleep(pause_s)
    raise AssertionError


def bounded(function: Callable[[], _Result], limit_s: float) -> _Result:
    """Call a function that ends in about `limit_s`, from the main thread in another one."""
    if threading.current_thread() is not threading.main_thread():
        return function()
    return _in_thread(function, limit_s + 2)  # that of fsspec counts whole seconds


def attempt_s() -> float:
    """Return the time limit of one attempt of an operation that is repeated."""
    return timeout_s() / _ATTEMPTS_IN_TIME


def _in_thread(function: Callable[[], _Result], limit_s: float) -> _Result:
    """Call a function in a thread, which is left alone if it does not end in time."""
    outcomes: SimpleQueue[tuple[_Result | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            outcomes.put((function(), None))
        except BaseException as error:
            outcomes.put((None, error))

    threading.Thread(target=run, name="shardkeep-remote", daemon=True).start()
    try:
        result, error = outcomes.get(timeout=limit_s)
    except Empty:
        raise _SilentError from None
    if error is None:
        return result  # type: ignore[return-value]
    try:
        raise error
    finally:
        del error  # it refers to this frame


class _SilentError(Exception):
    """No answer within the time of an attempt; never leaves this module."""


# -- file systems ------------------------------------------------------------------------------------------

_systems: dict[tuple[int, str, str, str], Any] = {}
_making = threading.Lock()


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of this process for a URL, and the path of the object in it."""
    before, path, after = split_url(url)
    # fsspec makes one for each thread, with its own connections.
    core = import_extra("fsspec.core", f"{display(url)} is a URL, which", display(url))
    key = os.getpid(), before, after, str(core.conf)
    system = _systems.get(key)
    if system is None:
        with _making:
            system = _systems.get(key)
            if system is None:
                try:
                    system = core.url_to_fs(url)[0]
                except ValueError as error:  # an unknown protocol
                    raise PlanError(f"cannot open {display(url)}: {error}", path=display(url)) from None
                _systems[key] = system
    filters = before.rfind("::") + 2 if "::" in before else 0
    return system, system._strip_protocol(before[filters:] + path)


def _forget_in_child() -> None:
    global _making
    _making = threading.Lock()
    _systems.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def drop_listings() -> None:
    """Remove the listings that fsspec keeps: another process may have written an object since."""
    for system in list(_systems.values()):
        system.invalidate_cache()
