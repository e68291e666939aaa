"""Checks of the installed libraries: versions with known faults, conflicts, and HDF5 with its locks.

Other rooms import any module.
"""
