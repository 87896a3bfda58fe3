"""The watermark store without a database: its values, its rules, and the interface that `store` implements."""
