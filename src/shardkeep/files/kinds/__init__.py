"""Recognition of the kind of a file by its content, or by its name.

Other rooms import `data_names`, `kind`, `special` and `urls`.
"""
