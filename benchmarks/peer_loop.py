"""Protocol of a peer process: a line of JSON in, a line of JSON out."""

import json
import sys
import time


def serve(versions, run):
    """Send `versions`, then answer each line ``[job, paths, argument]``.

    The answer is ``[seconds, records, peak_bytes]``.

    ``run(job, paths, argument)`` returns the number of records, or (seconds, records) if it measured its own
    time.
    """
    print(json.dumps(versions), flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        done = run(*json.loads(line))
        seconds, records = done if isinstance(done, tuple) else (time.perf_counter() - start, done)
        print(json.dumps([seconds, records, _peak_bytes()]), flush=True)


def _peak_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
