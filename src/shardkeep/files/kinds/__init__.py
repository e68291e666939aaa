"""Recognition of the kind of a file by its content.

Other rooms import `kind`, `special` and `urls`.
"""
