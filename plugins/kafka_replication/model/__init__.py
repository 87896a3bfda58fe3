"""The values of the domain: offsets, ranges, coverage, keys and errors.

Imports no other package of this project.
"""
