"""Producers of the target, one for each way to acknowledge; the window of what is sent, and fencing."""
