"""Decides the work of a run. Pure: values in, values out; nothing here talks to a cluster or a store."""
