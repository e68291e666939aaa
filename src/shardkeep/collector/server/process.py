"""A collector's process: from its options to its end. The command and `Collector` both run it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

from shardkeep.collector.protocol.address_file import remove_address_file, write_address_file
from shardkeep.collector.protocol.keys import client_key_path
from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.server.events import Events
from shardkeep.collector.server.server import Server
from shardkeep.collector.store.store import Store
from shardkeep.errors import NotFoundError, ShardkeepError

__all__ = ["child_main", "recover_file", "run"]


def run(
    settings: Settings,
    events: Events,
    *,
    ready: Callable[[str], None] | None = None,
    commands: int | None = None,
) -> dict[str, Any]:
    """Collect until told to stop; return what there is to report.

    Parameters
    ----------
    settings : Settings
        Without an address it listens on a Unix socket of its own.
    events : Events
    ready : callable, optional
        Told the address once clients may come.
    commands : int, optional
        A descriptor: after a line "finish" it ends when every rank has left; after "stop", or when nobody has
        the other end any more, at once. So it does after SIGTERM and SIGINT.
    """
    reasons: list[str] = []
    signals = _Signals(reasons)
    until_done = settings.until_done
    try:
        _raise_descriptor_limit()
        server = Server(settings, events)
        try:
            key = None if settings.key_file is None else os.path.abspath(client_key_path(settings.key_file))
            write_address_file(settings.path, server.address, key)
            server.poller.register(signals.fd, 1)
            if commands is not None:
                server.poller.register(commands, 1)
            events.listening(server.address)
            if ready is not None:
                ready(server.address)
            while not server.is_done:
                others = server.step(server.wait_s)
                if commands is not None and commands in others:
                    said = os.read(commands, 4096)
                    until_done = until_done or b"finish" in said
                    if not said or b"stop" in said:
                        reasons.append("told to" if said else "the process that started it has ended")
                        server.poller.unregister(commands)
                        commands = None
                if signals.fd in others:
                    signals.drain()
                if until_done and server.everybody_has_left:
                    reasons.append("every rank has left")
                if reasons:
                    server.stop(reasons[0])
        finally:
            remove_address_file(settings.path)
            report = server.close()
        events.finished(report)
        return report
    finally:
        signals.restore()


def recover_file(path: str, events: Events) -> None:
    """Bring the file of a collector that was killed to its last commit, and close it in good order."""
    if not os.path.exists(path):
        raise NotFoundError(f"there is no file {path!r}: give the one that a collector wrote", path=path)
    store = Store(path, synced=True, takes_old_log=True)
    events.opened(store)
    rows = store.rows
    store.close(run_ended=False)
    events.finished({"path": path, "rows": rows})


class _Signals:
    """SIGTERM and SIGINT as something to wait for."""

    def __init__(self, reasons: list[str]) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        self._reasons = reasons
        self._old = {one: signal.signal(one, self._note) for one in (signal.SIGTERM, signal.SIGINT)}

    def _note(self, number: int, frame: Any) -> None:
        self._reasons.append(signal.Signals(number).name)
        os.write(self._write, b".")

    def drain(self) -> None:
        """Read away what woke the loop."""
        while select.select([self.fd], [], [], 0)[0]:
            os.read(self.fd, 100)

    def restore(self) -> None:
        """Put the handlers back."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        os.close(self.fd)
        os.close(self._write)


def child_main() -> None:
    """Run as the child of a `Collector`: options on stdin, answers on stdout, a JSON line each."""
    settings = Settings(**json.loads(sys.stdin.buffer.readline()))
    # The process that started it decides when it ends; its terminal's Ctrl-C is not for the child.
    with contextlib.suppress(PermissionError):
        os.setsid()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    try:
        events = Events(sys.stderr, "problems")
        report = run(settings, events, ready=lambda address: answer(address=address), commands=0)
        answer(report=report)
    except BrokenPipeError:
        pass
    except ShardkeepError as error:
        with contextlib.suppress(BrokenPipeError):
            answer(error=type(error).__name__, text=str(error))


def _raise_descriptor_limit() -> None:
    """A client takes a descriptor or two; the soft limit is often 1,024."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
