"""The process of a collector: receives batches, grants credit, commits, reports.

Other rooms import `events` and `process`.
"""
