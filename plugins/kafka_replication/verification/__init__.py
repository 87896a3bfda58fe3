"""What counts as verified: receipts, digests, and the comparison of source and target."""
