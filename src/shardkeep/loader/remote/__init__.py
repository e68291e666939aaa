"""Remote shards of a loader, and their fetching ahead of its steps.

Other rooms import `ahead` and `shards`.
"""
