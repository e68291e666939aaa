"""Views of runs: scalars of event files, and the commits of ranks and collectors in a run folder.

Other rooms import `run_view` and `scalars_view`.
"""
