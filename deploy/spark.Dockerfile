# A Spark standalone node with what the product's tasks import on an executor.
# Python's minor version has to be the driver's (deploy/airflow.Dockerfile); the versions are those of requirements.txt.
# Build from the repository's root: docker build -f deploy/spark.Dockerfile .
FROM eclipse-temurin:17-jre AS java

FROM python:3.11-slim

COPY --from=java /opt/java/openjdk /opt/java/openjdk
ENV JAVA_HOME=/opt/java/openjdk
ENV PATH="/opt/java/openjdk/bin:${PATH}"

RUN pip install --no-cache-dir \
    confluent-kafka==2.16.1 \
    cramjam==2.14.0 \
    crc32c==2.9.post0 \
    jmespath==1.1.0 \
    kio==0.6.5 \
    lz4==4.4.5 \
    pydantic==2.14.3 \
    pyspark==4.2.0 \
    scramp==1.5.0 \
    tenacity==9.2.1 \
    xxhash==4.1.0 \
    zstandard==0.25.0

RUN useradd --create-home spark
USER spark
WORKDIR /home/spark
