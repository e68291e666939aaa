collect_ignore = [
    "make_zstd_file.py",
    "make_event_files.py",
    "make_tensorflow_files.py",
]  # run where TensorFlow is
