"""Indexes of TFRecord files: where each record begins, kept in a sidecar.

Other rooms import `index`, `damaged`, `positions`, `remote`, `scan`, `state` and `text`.
"""
