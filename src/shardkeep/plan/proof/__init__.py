"""Receipts of the delivered records, and the audit that proves an epoch from them.

Other rooms import any module.
"""
