"""Opening HDF5 files under locks: lock modes, lock holders, damage checks, the budget of open files.

Other rooms import `access`, `damage`, `file_version`, `forked_handle`, `guard_exemption`,
`holders`, `mode`, `open_errors`, `open_files`, `reading` and `writing`.
"""
