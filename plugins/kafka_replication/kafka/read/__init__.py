"""Readers of bounded parts of a partition, record by record."""
