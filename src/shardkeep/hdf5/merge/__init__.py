"""`hdf5.merge`: the plan of a merge, the copy of rows and chunks, the result.

Other rooms import `checks`, `find_sources`, `merge`, `plan`, `planner` and `provenance`.
"""
