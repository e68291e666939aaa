"""Views of TFRecord files and data sets.

No view scans a large file unless a person asks for it: numbers of records are those of stored indexes, and
files of less than a megabyte are scanned where they are shown.
Other rooms import `damage`, `epoch`, `epoch_picture`, `histograms`, `records` and `shards`.
"""
