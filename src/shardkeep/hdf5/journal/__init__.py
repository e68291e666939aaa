"""In-place changes of a live HDF5 file that survive a kill: the redo log, its recovery, views for readers.

Other rooms import `live_file`, `live_view`, `paths` and `recovery`.
"""
