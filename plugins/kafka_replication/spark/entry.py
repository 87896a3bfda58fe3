"""The entry point for spark-submit if the package is installed. See `kafka_replication.spark.driver`."""

from kafka_replication.spark.start import main

if __name__ == "__main__":
    main()
