"""Benchmarks of Shardkeep; run them with ``python -m benchmarks``."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# As in an installed package: otherwise each child process compiles all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
