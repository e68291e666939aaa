"""Parts of `verify`: the inventory of folders, the checks of files, runs and sets, and the report.

Other rooms import `expectation`, `finding`, `hdf5_children`, `inventory`, `records`, `report`, `runs`
and `shard_sets`.
"""
