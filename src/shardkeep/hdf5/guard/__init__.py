"""`hdf5.guard`: h5py calls of any program, stopped before they destroy a file.

Other rooms import `findings` and `watch`.
"""
