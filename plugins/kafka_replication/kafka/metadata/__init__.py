"""Reads topics, offsets and settings from the brokers, and takes the snapshot of both clusters."""
