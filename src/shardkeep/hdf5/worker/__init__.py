"""`WorkerFile`: the rows of one rank, in segments that appear whole with each commit.

Other rooms import `rollback` and `worker_file`.
"""
