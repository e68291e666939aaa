"""The process of a collector, from its settings to its end. The command and `Collector` both run it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from shardkeep._paths_in_messages import shown
from shardkeep.collector.protocol.address_file import remove_address_file, write_address_file
from shardkeep.collector.protocol.keys import client_key_path
from shardkeep.collector.protocol.messages import error_data
from shardkeep.collector.protocol.remote_file import written_locally
from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.server.events import Events
from shardkeep.collector.server.server import Server
from shardkeep.collector.store.store import Store
from shardkeep.errors import NotFoundError, ShardkeepError
from shardkeep.files.kinds.urls import display, is_url

__all__ = ["child_main", "recover_file", "run"]

_MOST_DESCRIPTORS = 65_536


def run(
    settings: Settings,
    events: Events,
    *,
    ready: Callable[[str], None] | None = None,
    commands: int | None = None,
) -> dict[str, Any]:
    """Collect until the end is requested; return the final report.

    Parameters
    ----------
    settings : Settings
        Without an address, it listens on a Unix socket in its own folder.
    events : Events
    ready : callable, optional
        Called with the address when clients can connect.
    commands : int, optional
        A descriptor. After the line "finish" the collector ends when every rank has left; after "stop", or
        when the other end is closed, it ends at once, as it does after SIGTERM and SIGINT.
    """
    with written_locally(settings.place):
        report = _collect(settings, events, ready, commands)
        if is_url(settings.place):
            events.uploading(display(settings.place))
    events.finished(report)
    return report


def _collect(
    settings: Settings, events: Events, ready: Callable[[str], None] | None, commands: int | None
) -> dict[str, Any]:
    reasons: list[str] = []
    signals = _Signals(reasons)
    until_done = settings.until_done
    try:
        _raise_descriptor_limit()
        server = Server(settings, events)
        try:
            key = None if settings.key_file is None else os.path.abspath(client_key_path(settings.key_file))
            write_address_file(settings.path, server.address, key)
            for fd in (signals.fd, commands):
                if fd is not None:
                    server.poller.register(fd, 1)
            events.listening(server.address)
            if ready is not None:
                ready(server.address)
            while not server.is_done:
                others = server.step()
                if commands is not None and commands in others:
                    line = os.read(commands, 4096)
                    until_done = until_done or b"finish" in line
                    if not line or b"stop" in line:
                        reasons.append("as requested" if line else "the process that started it has ended")
                        server.poller.unregister(commands)
                        commands = None
                if signals.fd in others:
                    signals.drain()
                if until_done and server.is_finished:
                    reasons.append("every rank has left")
                if reasons:
                    server.stop(reasons[0])
        finally:
            remove_address_file(settings.path)
            report = server.close()
        return report
    finally:
        signals.restore()


def recover_file(place: str, events: Events) -> None:
    """Restore the file of a killed collector to its last commit, and close it properly."""
    with written_locally(place) as path:
        if not os.path.exists(path):
            raise NotFoundError(f"{path!r} does not exist: pass the file that a collector wrote", path=path)
        store = Store(path, synced=True, takes_old_log=True)
        events.opened(store)
        rows = store.rows
        store.close(run_ended=False)
    events.finished({"path": shown(path), "rows": rows})


class _Signals:
    """SIGTERM and SIGINT as a descriptor to wait for."""

    def __init__(self, reasons: list[str]) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        self._reasons = reasons
        self._old = {one: signal.signal(one, self._receive) for one in (signal.SIGTERM, signal.SIGINT)}

    def _receive(self, number: int, frame: Any) -> None:
        self._reasons.append(signal.Signals(number).name)
        os.write(self._write, b".")

    def drain(self) -> None:
        """Read the bytes that woke the loop."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fd, 100):
                pass

    def restore(self) -> None:
        """Restore the signal handlers of before."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        os.close(self.fd)
        os.close(self._write)


def child_main() -> None:
    """Run as the child of a `Collector`: settings on stdin, answers on stdout, one JSON object per line."""
    settings = Settings(**json.loads(sys.stdin.buffer.readline()))
    # The process that started the collector decides when it ends; a Ctrl-C of its terminal must not.
    with contextlib.suppress(PermissionError):
        os.setsid()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    with contextlib.suppress(BrokenPipeError):
        try:
            events = Events(sys.stderr, "problems")
            answer(report=run(settings, events, ready=lambda address: answer(address=address), commands=0))
        except ShardkeepError as error:
            answer(**error_data(error))


def _raise_descriptor_limit() -> None:
    # Each client takes a descriptor, and one more for shared memory. libzmq 4.3.5 aborts the process when
    # none is left for a connection, which the usual soft limit of 1,024 would reach at some 500 clients. It
    # is that low for select(2), which this process does not use.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
