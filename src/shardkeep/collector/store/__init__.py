"""The HDF5 file of a collector, from declared datasets to commits.

Other rooms import `client_table`, `snapshot` and `store`.
"""
