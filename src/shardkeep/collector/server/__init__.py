"""The process of a collector: its loop, its clients, credits and commits.

Other rooms import `events` and `process`.
"""
