"""Start of the command: signals, before its modules are imported.

Other rooms import `main`.
"""
