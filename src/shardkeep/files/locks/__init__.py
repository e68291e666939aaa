"""Advisory locks on files, and the decision where they exclude other processes.

Other rooms import `holder`, `lock`, `mounts` and `probe`.
"""
