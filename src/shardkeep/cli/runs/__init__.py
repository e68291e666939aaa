"""Commands that change the folder of a run.

Other rooms import `rollback`.
"""
