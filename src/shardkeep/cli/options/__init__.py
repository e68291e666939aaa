"""Options of the commands.

Other rooms import any module.
"""
