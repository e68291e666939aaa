"""Checks of the files that a job reads, and of those that earlier jobs left.

Other rooms import any module.
"""
