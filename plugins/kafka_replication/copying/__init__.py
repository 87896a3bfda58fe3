"""The protocol that copies one range exactly once, and the interface that a copy engine implements."""
