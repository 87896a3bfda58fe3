"""spark-submit entry point: verify the offset ranges of a job file. See `kafka_replication.spark.driver`."""

from kafka_replication.spark.driver import main

if __name__ == "__main__":
    main("verify")
