"""HDF5 files that are only read: objects, rows, addresses, and Shardkeep's own tables in them.

Other rooms import `inspection`, `links`, `raw_file`, `receipts`, `source`, `stored_bytes`, `tables` and
`templates`.
"""
