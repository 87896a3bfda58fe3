"""What every kind of target has to do, as plain functions: `sink`, `ledger` and `transaction` have lists of checks.

Each check gets a case of its own, which is made of a `Ground`, and raises AssertionError. So they run under any test
framework, and on implementations that are broken on purpose.
"""
