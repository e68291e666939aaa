"""Tasks of jobs, in threads whose locks no signal can leave taken, or in the workers of an executor.

Other rooms import any module.
"""
