"""spark-submit entry point of an installed package: run the job of a file. See `kafka_replication.spark.driver`."""

from kafka_replication.spark.driver import main

if __name__ == "__main__":
    main()
