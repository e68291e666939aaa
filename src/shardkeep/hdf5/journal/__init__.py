"""Crash-safe changes of an HDF5 file in place: the redo log, recovery, and views for readers.

Other rooms import `live_file`, `live_view`, `paths`, `recovery`, `redo_log` and `superblock`.
"""
