"""The machine that starts Spark: its environment, its folders, its Java, and if it can reach the master."""
