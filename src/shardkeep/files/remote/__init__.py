"""Objects in remote stores, through the back ends of fsspec.

Other rooms import `store` and `errors`.
"""
