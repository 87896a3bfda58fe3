"""spark-submit entry point: copy and read back offset ranges. See `kafka_replication.spark.driver`."""

from kafka_replication.spark.start import main

if __name__ == "__main__":
    main()
