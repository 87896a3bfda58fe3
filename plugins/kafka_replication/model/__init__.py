"""The words of the domain as values: offsets, ranges, coverage, keys and errors.

Imports nothing of this package but itself.
"""
