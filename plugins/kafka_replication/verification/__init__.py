"""What counts as verified: receipts, digests, and the comparison of both sides."""
