"""Processes that write rows at the same time, and what they write."""

import multiprocessing

PRODUCERS = 4
CHUNK_ROWS = 16
VALUES = 8192  # 32 KiB of float32 per row, one message each; 16 rows are one chunk
FORK = multiprocessing.get_context("fork")


def start(producer, *args):
    """Start processes of ``producer(*args, rank, wait)``; return a function that runs and joins them.

    Each is ready when it calls ``wait``, so processes, files and connections exist before a measurement.
    """
    ready, go = FORK.Semaphore(0), FORK.Event()

    def wait():
        ready.release()
        go.wait()

    children = [FORK.Process(target=producer, args=(*args, rank, wait)) for rank in range(PRODUCERS)]
    for child in children:
        child.start()
    for _ in children:
        ready.acquire()

    def run():
        go.set()
        for child in children:
            child.join()
            assert child.exitcode == 0

    return run
