"""Checks of the limits of this machine and of its container or job.

Other rooms import any module.
"""
