"""Hashes of a merged file: the table that keeps them, their verification, the comparison with the sources.

Other rooms import `comparison`, `table` and `verification`.
"""
