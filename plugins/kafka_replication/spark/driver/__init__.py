"""The side of Spark's driver: it takes jobs and deals their tasks to the workers."""
