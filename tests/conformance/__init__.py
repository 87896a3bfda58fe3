"""Suites that every kind of target has to pass: `sink`, `catalogue`, `standing`, `deciding`, `ledger` and `transaction`
have lists of plain functions.

Each check gets a case of its own, which is made of a `Ground`, and raises AssertionError. So they run under any test
framework, and on implementations that are broken on purpose.
"""
