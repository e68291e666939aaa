"""Threads of jobs, whose locks no signal can leave taken.

Other rooms import `tasks`.
"""
