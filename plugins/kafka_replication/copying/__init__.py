"""The protocol that copies one range exactly once, and the interface of a copy engine."""
