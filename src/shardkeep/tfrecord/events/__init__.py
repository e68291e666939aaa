"""Scalars of TensorBoard event files.

Other rooms import `message` and `scalars`.
"""
