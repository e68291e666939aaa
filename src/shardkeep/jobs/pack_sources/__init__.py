"""Sources of records for `pack`: folders of images, tables, arrays, WebDataset archives.

Other rooms import any module.
"""
