"""Commands that find out what is wrong; the function of each is in `shardkeep.diagnosis`.

Other rooms import `doctor`, `explain` and `repair`.
"""
