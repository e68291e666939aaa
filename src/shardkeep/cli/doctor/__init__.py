"""Commands that find out what is wrong; the function of each is in `shardkeep.doctor`.

Other rooms import `explain`.
"""
