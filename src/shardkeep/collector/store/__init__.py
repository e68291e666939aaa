"""The HDF5 file of a collector: its datasets, values and clients, and their commits.

Other rooms import `client_table`, `snapshot` and `store`.
"""
