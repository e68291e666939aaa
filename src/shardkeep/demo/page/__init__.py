"""The page `report.html`: its data (`timeline`), its charts and its HTML.

Other rooms import `charts`, `html` and `timeline`.
"""
