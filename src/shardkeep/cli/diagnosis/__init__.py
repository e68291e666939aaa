"""Commands that find out what is wrong, and show it; their functions are in `diagnosis`, `jobs` and `viewer`.

Other rooms import `bench`, `doctor`, `explain`, `repair` and `view`.
"""
