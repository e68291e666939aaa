collect_ignore_glob = ["make_*.py"]  # scripts that write the files of tests/data
