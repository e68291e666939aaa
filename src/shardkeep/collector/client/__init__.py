"""The client of a collector: its calls, its buffers, and the thread that sends.

Other rooms import `client`, `connect` and `spill`.
"""
