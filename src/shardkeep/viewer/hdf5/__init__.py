"""Views of HDF5 files, which are read by child processes (`child`) that may crash.

Other rooms import `processes` and `view`.
"""
