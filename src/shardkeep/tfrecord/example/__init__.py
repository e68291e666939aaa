"""Examples and SequenceExamples: encoding, decoding into columns, and schemas.

Other rooms import any module.
"""
