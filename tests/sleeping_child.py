"""A child process of `doctor` that ignores the end of its input, as one whose file server is dead."""

from __future__ import annotations

import time


def probe(*_: object) -> None:
    print('{"operation": "the creation of a folder"}', flush=True)  # noqa: T201
    time.sleep(600)
