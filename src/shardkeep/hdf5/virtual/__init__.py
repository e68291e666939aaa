"""Virtual datasets that raise an error for an unreadable source, where HDF5 returns fill values.

Other rooms import `checked_sources`, `dataset`, `layout`, `source_search` and `sources`.
"""
