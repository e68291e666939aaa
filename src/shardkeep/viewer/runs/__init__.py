"""Views of runs: scalars of event files; commits of ranks and collectors in a run folder; its receipts.

Other rooms import `delivered_view`, `run_view` and `scalars_view`.
"""
