"""Topics, offsets and settings as the brokers tell them; the snapshot of both clusters."""
