"""The target of a replication: the interface of all that is done to one, and what is the same for every kind."""
