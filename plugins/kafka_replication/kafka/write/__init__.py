"""The target: producers, sessions of one partition, and writers of chunks."""
