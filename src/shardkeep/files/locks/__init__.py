"""Advisory locks on files, and the decision where they exclude other processes.

Other rooms import `lock`, `holder` and `probe`.
"""
