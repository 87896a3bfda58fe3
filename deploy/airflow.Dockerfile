# Airflow with this product's dependencies and a Java runtime, which spark-submit needs for the driver.
# Build from the repository's root: docker build -f deploy/airflow.Dockerfile .
FROM eclipse-temurin:17-jre AS java

FROM apache/airflow:3.3.2-python3.11

# Copied rather than installed: which OpenJDK Debian offers depends on the release below Airflow's image.
COPY --from=java /opt/java/openjdk /opt/java/openjdk
ENV JAVA_HOME=/opt/java/openjdk
ENV PATH="/opt/java/openjdk/bin:${PATH}"

# psycopg is the driver of both databases: Airflow's own and the watermark store.
COPY requirements.txt /requirements.txt
RUN pip install --no-cache-dir --requirement /requirements.txt "psycopg[binary]==3.3.9"

# A named volume takes its owner from the folder it is first mounted over; without this it would be root's.
RUN mkdir -p /opt/airflow/state
