"""Benchmarks of Shardkeep; run them with ``python -m benchmarks``."""
