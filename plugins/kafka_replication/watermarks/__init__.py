"""The watermark store as the domain sees it: its values, its rules, and the interface that `store` implements."""
