"""Scalars of TensorBoard event files.

Other rooms import `scalars`.
"""
