"""Schemas of all sources of a merge, unified into the schema of the result.

Other rooms import `survey` and `values`.
"""
