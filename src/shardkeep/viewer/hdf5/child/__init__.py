"""The child process that reads HDF5 files for the page: groups, rows, plots and images as JSON.

Other rooms import `limits`.
"""
