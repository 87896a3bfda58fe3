"""Verification of copies: receipts, digests, and the comparison of source and target."""
