"""Protocol of a program that does jobs on command: a line of JSON in, a line of JSON out.

Each side of a comparison is such a program in a separate process and environment. This file needs the
standard library only.
"""

import atexit
import importlib.metadata
import inspect
import json
import os
import resource
import sys
import time
import traceback

__all__ = ["descendants", "serve", "take"]


def serve(jobs, packages="", prepare=None):
    """Say READY with the versions of `packages`, then answer each line ``[job, files, batch, most]``.

    Parameters
    ----------
    jobs : dict
        Functions ``(files, batch, most)`` that return the number of their units. A generator function yields
        once before the part that is measured, and then the number of units. `most`, if it is not 0, is the
        number of records after which a slow job may stop.
    packages : str
        Names of the packages whose versions are part of the results.
    prepare : callable, optional
        Function that converts TFRecord files to the container of this peer and returns its files. The job
        "prepare" calls it.
    """
    os.setpgrp()  # its children end with it; a session would also have its own share of the processors
    versions = {name: importlib.metadata.version(name) for name in packages.split()}
    answer, sys.stdout = sys.stdout, sys.stderr  # a line that a framework prints is not an answer
    print(json.dumps({"READY": versions}), file=answer, flush=True)
    for line in sys.stdin:
        job, files, batch, most = json.loads(line)
        try:
            if job == "prepare":
                done = {"files": prepare(files) if prepare else files}
            else:
                done = _measured(jobs[job], files, batch, most)
        except Exception as error:
            traceback.print_exc()
            done = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(done), file=answer, flush=True)
    atexit._run_exitfuncs()
    os._exit(0)  # TensorFlow and PyTorch take seconds to free what the end of the process frees as well


def take(batches, most, size=len):
    """Take batches until they have `most` records, or all; return their number of records."""
    records = 0
    for batch in batches:
        records += size(batch)
        if most and records >= most:
            break
    return records


def descendants(pid):
    """Return the process `pid`, its children, their children and so on."""
    found = [pid]
    for parent in found:
        try:
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", encoding="ascii") as children:
                    found += map(int, children.read().split())
        except OSError:
            pass
    return found


def _measured(job, files, batch, most):
    running = None
    if inspect.isgeneratorfunction(getattr(job, "func", job)):
        running = job(files, batch, most)
        next(running)
    processor, clock = _processor_s(), time.perf_counter()
    units = next(running) if running else job(files, batch, most)
    done = {"seconds": time.perf_counter() - clock, "units": units}
    processor = _processor_s() - processor
    for _ in running or ():  # what a job cleans up
        pass
    return {**done, "processor_s": processor}


def _processor_s():
    """Return the processor time of this process, of its ended children, and of what still runs below it."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for pid in descendants(os.getpid())[1:]:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                ticks += sum(map(int, stat.read().rpartition(")")[2].split()[11:15]))
        except OSError:
            pass
    return time.process_time() + ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")
