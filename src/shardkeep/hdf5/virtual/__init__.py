"""Virtual datasets that raise for what cannot be read, where HDF5 returns fill values.

Other rooms import `checked_sources`, `dataset`, `layout`, `source` and `source_search`.
"""
