"""Segments of a run folder: their names, the record of a commit, the check of a series, rollback.

Other rooms import `commit_record`, `run_folder`, `segment`, `series_check` and
`series_end`.
"""
