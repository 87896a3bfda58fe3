"""The side of Spark's Python workers: they copy ranges and read them back."""
