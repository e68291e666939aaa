"""Checks of the file systems of the paths, tried out with scratch files by two processes.

Other rooms import `file_systems`.
"""
