"""The side of Spark's Python workers: they copy ranges, read them back, and audit them."""
