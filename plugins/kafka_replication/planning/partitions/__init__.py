"""One partition in a plan: where it begins, its gaps and target partitions, and why it may be refused. Pure."""
