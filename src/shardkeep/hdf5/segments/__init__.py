"""Segments of a run folder: their names, the record of a commit, checks of a series, described data.

Other rooms import `commit_record`, `described_data`, `run_folder`, `segment`, `series_check` and
`series_end`.
"""
