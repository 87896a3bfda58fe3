"""Readers that compare copies with their receipts, and with the source."""
