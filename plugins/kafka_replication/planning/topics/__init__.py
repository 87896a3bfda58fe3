"""The settings of topics that are created, and the checks of existing ones."""
