"""Parts of `repair`: one salvager for each kind of damaged file, and the report.

Other rooms import `report`.
"""
