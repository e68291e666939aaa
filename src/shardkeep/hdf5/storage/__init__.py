"""Rows, values, attributes and filters as they are stored in one HDF5 dataset.

Other rooms import any module.
"""
