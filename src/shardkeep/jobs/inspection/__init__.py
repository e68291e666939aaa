"""Parts of `info`: the commits of workers, merged files, and folders.

Other rooms import `folder`, `merged` and `workers`.
"""
