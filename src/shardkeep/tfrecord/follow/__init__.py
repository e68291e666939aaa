"""Reading of files that another process is writing.

Other rooms import `follow` and `live_frames`.
"""
