"""Objects in remote stores, through the back ends of fsspec.

Other rooms import `store`, `requests`, `errors`, `cache`, `copies`, `pending`, `base_upload` and `uploads`.
"""
