collect_ignore = ["make_tensorflow_files.py"]  # runs where TensorFlow is
