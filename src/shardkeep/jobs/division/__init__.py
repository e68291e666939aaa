"""Division of the records of some files among others: plan, verified copies, report.

Other rooms import `assignment` and `divide`.
"""
