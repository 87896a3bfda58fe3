"""Requests that find out before a run what it would be refused. They change nothing."""
