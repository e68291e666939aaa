"""Known causes of errors in logs and tracebacks.

The knowledge is data: a TOML file per entry in ``entries``, which `knowledge` describes and reads.
Other rooms import `diagnosis` and `search`.
"""
