"""The TFRecord format in Python: frames, compressions, and the search for records after damage.

Other rooms import any module.
"""
