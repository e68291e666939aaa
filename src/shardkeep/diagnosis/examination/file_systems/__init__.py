"""Trials of file systems with scratch files, by two processes for the doctor and by many for the bench.

Other rooms import `file_systems`, `second_host`, `storage` and `storage_report`.
"""
