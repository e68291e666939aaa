"""Salvage of HDF5 files: exact repairs of the superblock, then a new file from the objects that are left.

Other rooms import `salvage`.
"""
