"""Opening of HDF5 files under locks: locking mode, lock holders, damage checks, budget of open files.

Other rooms import any module.
"""
