"""`hdf5.open`: h5py's classes with identifiers that can be closed, reopened, forked and pickled.

Other rooms import `dataset`, `file`, `group`, `member` and `open_file`.
"""
