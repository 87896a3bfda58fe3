"""Settings of topics that are created, and what is checked on existing ones."""
