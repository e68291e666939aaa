"""Indexes of TFRecord files: where each record begins, kept in a sidecar.

Other rooms import `binary`, `index`, `damaged`, `dataset_file`, `positions`, `remote`, `scan`, `state`,
`store`, `text` and `together`.
"""
