"""Decide what a run has to do. Pure: values in, values out; nothing here talks to a cluster or a store."""
