"""Rows, values, attributes and filters as they are stored in one HDF5 dataset.

Other rooms import `attributes`, `byte_order`, `chunk_table`, `compression`, `layout`,
`own_objects`, `promotion`, `row_writer`, `rows` and `value_types`.
"""
