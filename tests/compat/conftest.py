collect_ignore = ["make_event_files.py", "make_tensorflow_files.py"]  # run where TensorFlow is
