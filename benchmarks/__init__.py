"""What is fast, measured; run with ``python -m benchmarks``."""
