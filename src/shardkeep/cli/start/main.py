"""The function that the script ``shardkeep`` calls; it imports little before Ctrl-C is silent."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import NoReturn

from shardkeep.cli.exit_codes import ExitCode

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command of ``sys.argv`` and exit with its exit code.

    Ctrl-C while the modules of the command are imported ends the process at once. Later, Ctrl-C, SIGTERM and
    SIGHUP raise an exception, so that locks and temporary files are removed. Signals that the parent ignores
    (``nohup``) stay ignored.
    """
    _open_closed_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(ExitCode.INTERRUPTED))
    # Objects of many files are kept to the end, and each search for cycles among them is in vain.
    gc.set_threshold(100_000)
    from shardkeep.cli.app import main as run_and_exit
    from shardkeep.cli.app import stop_by_signal

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop_by_signal)
    try:
        run_and_exit()
    except KeyboardInterrupt:  # the second one, while the first is reported
        sys.exit(ExitCode.INTERRUPTED)


def _open_closed_streams() -> None:
    """Open /dev/null for each standard stream that the parent has closed, as with ``>&-``.

    The first file that the command opens would otherwise get its number, and the output of libraries.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
