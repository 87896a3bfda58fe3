"""Retention: losses on the source before they happen, and copies that the target has removed. Pure."""
