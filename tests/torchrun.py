"""A launcher with the command line and the environment of torchrun, for tests without PyTorch.

`torchrun --nproc-per-node N SCRIPT [ARGUMENTS]`: N processes of this host; the exit code is the first that is
not 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="torchrun")
    parser.add_argument("--nproc-per-node", type=int, default=1)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    size = options.nproc_per_node
    ranks = [
        subprocess.Popen(
            [sys.executable, options.script, *options.arguments],
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_WORLD_SIZE": str(size),
                "GROUP_RANK": "0",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500",
            },
        )
        for rank in range(size)
    ]
    return next((code for code in [one.wait() for one in ranks] if code), 0)


if __name__ == "__main__":
    sys.exit(main())
