"""Checks of this machine and of files, as one training job would meet them.

Other rooms import `examine`, `report` and `subject`.
"""
