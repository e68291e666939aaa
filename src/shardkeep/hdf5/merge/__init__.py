"""`hdf5.merge`: the plan of a merge, the copy of rows and chunks, the result.

Other rooms import `find_sources`, `merge`, `plan`, `plan_text` and `provenance`.
"""
