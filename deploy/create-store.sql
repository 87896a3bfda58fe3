-- The watermark store: a database and a user of its own beside Airflow's. PostgreSQL's image runs this once, on an empty data folder.
\getenv password STORE_PASSWORD
CREATE ROLE kafka_replication LOGIN PASSWORD :'password';
CREATE DATABASE kafka_replication OWNER kafka_replication;
REVOKE CONNECT ON DATABASE kafka_replication FROM PUBLIC;
