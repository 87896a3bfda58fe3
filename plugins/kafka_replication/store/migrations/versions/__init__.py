"""One file for each schema version, in order; see the package above."""
