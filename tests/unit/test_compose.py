"""docker-compose.yaml and the two images: valid by the Compose specification's schema, and in agreement with the rest of the repository.

No container is started here. What can be known without one is checked: versions, pins, paths, names, ports and secrets.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import zipfile
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yaml"
STORE_SQL = ROOT / "deploy" / "create-store.sql"
DOCKERFILES = sorted((ROOT / "deploy").glob("*.Dockerfile"))
VARIABLE = re.compile(r"(?<!\$)\$\{(?P<name>[A-Z_]+)(?::-(?P<default>[^}]*))?\}")
PIN = re.compile(r"(?m)^[\s\"]*(?P<name>[a-z][a-z0-9-]*)(?:\[\w+\])?==(?P<version>[^\s\"\\]+)")


def interpolated(value: Any) -> Any:
    """``value`` as Compose sees it where no variable is set."""
    if isinstance(value, dict):
        return {key: interpolated(each) for key, each in value.items()}
    if isinstance(value, list):
        return [interpolated(each) for each in value]
    return VARIABLE.sub(_default, value).replace("$$", "$") if isinstance(value, str) else value


def _default(found: re.Match[str]) -> str:
    return str(found["default"] or "")


RAW = yaml.safe_load(COMPOSE.read_text())
SERVICES: dict[str, dict[str, Any]] = interpolated(RAW["services"])
AIRFLOW = {
    name: each
    for name, each in SERVICES.items()
    if each.get("build", {}).get("dockerfile") == "deploy/airflow.Dockerfile"
}
KAFKA = {name: each for name, each in SERVICES.items() if each["image"].startswith("apache/kafka:")}
SCHEDULER: dict[str, str] = SERVICES["airflow-scheduler"]["environment"]


def pins(text: str) -> dict[str, str]:
    return {m["name"]: m["version"] for m in PIN.finditer(text.replace(' "', "\n"))}


REQUIRED = pins((ROOT / "requirements.txt").read_text())


def dockerfile(name: str) -> str:
    return (ROOT / "deploy" / f"{name}.Dockerfile").read_text()


def base_image(name: str) -> str:
    images: list[str] = re.findall(r"(?m)^FROM (\S+)$", dockerfile(name))
    return images[-1]


def installed(package: str) -> Path:
    """The folder of an installed package, which is not imported for it."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def environment_connection(name: str) -> dict[str, Any]:
    connection: dict[str, Any] = json.loads(SCHEDULER[f"AIRFLOW_CONN_{name.upper()}"])
    return connection


def replications() -> list[Path]:
    return sorted((ROOT / "dags" / "replications").glob("*.yaml"))


def test_the_file_is_valid_by_the_schema_of_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


# Versions


def test_both_clusters_run_the_kafka_version_of_the_native_stack() -> None:
    found = re.search(r"\bkafka_2\.13-(\S+)\.jar$", (ROOT / "stack" / "kafka-jars.lock").read_text(), re.MULTILINE)
    assert found is not None
    assert {name: each["image"] for name, each in KAFKA.items()} == {
        "kafka-source": f"apache/kafka:{found[1]}",
        "kafka-target": f"apache/kafka:{found[1]}",
    }


def test_the_airflow_image_is_of_the_required_version() -> None:
    assert base_image("airflow") == f"apache/airflow:{REQUIRED['apache-airflow']}-python3.11"
    assert {each["image"] for each in AIRFLOW.values()} == {f"kafka-replication/airflow:{REQUIRED['apache-airflow']}"}


def test_the_spark_image_is_of_the_required_version() -> None:
    assert pins(dockerfile("spark"))["pyspark"] == REQUIRED["pyspark"]
    for name in ("spark-master", "spark-worker"):
        assert SERVICES[name]["image"] == f"kafka-replication/spark:{REQUIRED['pyspark']}"


def test_driver_and_workers_have_the_same_minor_version_of_python() -> None:
    driver, worker = (re.search(r"python:?(\d\.\d+)", base_image(name)) for name in ("airflow", "spark"))
    assert driver is not None and worker is not None
    assert driver[1] == worker[1]
    assert SCHEDULER["PYSPARK_PYTHON"] == SCHEDULER["PYSPARK_DRIVER_PYTHON"] == f"python{worker[1]}"


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_every_pin_in_a_dockerfile_is_the_required_one(path: Path) -> None:
    pinned = pins(path.read_text())
    assert pinned
    assert {name: version for name, version in pinned.items() if REQUIRED.get(name, version) != version} == {}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_installs_pinned_versions_only_and_copies_what_exists(path: Path) -> None:
    text = path.read_text()
    installs = re.findall(r"(?m)^RUN pip install --no-cache-dir((?:\\\n|.)*)$", text)
    assert installs
    for install in installs:
        words = install.replace("\\\n", " ").split()
        assert [w for w in words if "==" not in w and w not in ("--requirement", "/requirements.txt")] == []
    for source in re.findall(r"(?m)^COPY (?!--from)(\S+) ", text):
        assert (ROOT / source).is_file()


def test_the_airflow_image_installs_the_requirements_and_the_driver_of_its_database_urls() -> None:
    text = dockerfile("airflow")
    assert "COPY requirements.txt /requirements.txt" in text
    assert "--requirement /requirements.txt" in text
    assert "psycopg" in pins(text)
    for name in (
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC",
        "KAFKA_REPLICATION_STORE_URL",
    ):
        assert SCHEDULER[name].startswith("postgresql+psycopg://")


def closure(names: set[str]) -> set[str]:
    """Distributions and all they require, without extras."""
    todo, found = set(names), set[str]()
    while todo:
        name = todo.pop()
        found.add(name)
        needed = [
            line for line in requires(name) or [] if not re.search(r"extra ==|platform_system|sys_platform", line)
        ]
        matches = [re.match(r"[\w.-]+", line) for line in needed]
        todo |= {m[0].lower().replace("_", "-") for m in matches if m} - found
    return found


def test_the_spark_image_has_everything_that_a_task_imports() -> None:
    """Runs in a process of its own: this one has imported far more than a worker does."""
    code = """
import importlib.metadata, json, sys
before = set(sys.modules)  # what the interpreter's own start-up hooks have brought
import kafka_replication.spark.worker, kafka_replication.kafka.record_engine, kafka_replication.kafka.read_back
owners = importlib.metadata.packages_distributions()
outside = {m.partition(".")[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(json.dumps(sorted({d.lower().replace("_", "-") for m in outside for d in owners.get(m, [])})))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "plugins")
    assert set(json.loads(ran.stdout)) - {"kafka-replication"} <= closure(set(pins(dockerfile("spark"))))


# Paths and names


def test_every_folder_and_file_that_is_mounted_exists_and_is_mounted_read_only() -> None:
    mounts = {mount for each in SERVICES.values() for mount in each.get("volumes", [])}
    mounted = {mount for mount in mounts if mount.startswith(".")}
    assert {mount.split(":")[0] for mount in mounted} == {
        "./dags",
        "./plugins",
        "./spark_jobs",
        "./deploy/create-store.sql",
    }
    for mount in mounted:
        source, _, options = mount.split(":")
        assert (ROOT / source).exists(), mount
        assert options == "ro", mount
    assert {mount.split(":")[0] for mount in mounts - mounted} == set(RAW["volumes"])


def test_every_dockerfile_exists_and_is_used() -> None:
    used = {each["build"]["dockerfile"] for each in SERVICES.values() if "build" in each}
    assert used == {str(path.relative_to(ROOT)) for path in DOCKERFILES}


def test_what_is_waited_for_can_be_reached() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            match how["condition"]:
                case "service_healthy":
                    assert "test" in SERVICES[other]["healthcheck"], f"{name} waits for {other}"
                case "service_completed_successfully":
                    assert SERVICES[other]["restart"] == "no", f"{name} waits for {other}"
                case condition:
                    pytest.fail(f"{name} waits for {other}: {condition}")


@pytest.mark.parametrize("path", replications(), ids=lambda path: path.name)
def test_every_connection_that_a_replication_uses_is_defined(path: Path) -> None:
    replication = yaml.safe_load(path.read_text())
    for side in ("source", "target"):
        assert environment_connection(replication[side]["connection"])["conn_type"] == "kafka"
    assert (
        environment_connection(replication.get("spark", {}).get("connection", "spark_default"))["conn_type"] == "spark"
    )


def test_there_is_a_replication_to_run() -> None:
    assert replications()


@pytest.mark.parametrize(
    ("connection", "service"), [("kafka_source", "kafka-source"), ("kafka_target", "kafka-target")]
)
def test_a_kafka_connection_leads_to_the_listener_of_its_cluster(connection: str, service: str) -> None:
    servers = environment_connection(connection)["extra"]["bootstrap.servers"]
    advertised = SERVICES[service]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert f"INTERNAL://{servers}" in advertised
    assert servers.partition(":")[0] == service


def test_the_spark_connection_leads_to_the_master() -> None:
    connection = environment_connection("spark_default")
    command = SERVICES["spark-master"]["command"]
    assert connection["host"] == f"spark://{command[command.index('--host') + 1]}"
    assert str(connection["port"]) == command[command.index("--port") + 1]
    assert connection["extra"]["deploy-mode"] == "client"
    assert SERVICES["spark-worker"]["command"][-1] == f"{connection['host']}:{connection['port']}"


def test_the_clusters_have_ids_of_their_own() -> None:
    ids = [each["environment"]["CLUSTER_ID"] for each in KAFKA.values()]
    assert len(set(ids)) == 2
    for each in ids:
        assert re.fullmatch(r"[A-Za-z0-9_-]{22}", each), "16 bytes in base64 without padding, as Kafka writes them"


def test_the_store_has_the_user_password_and_database_of_its_url() -> None:
    url = re.fullmatch(
        r"postgresql\+psycopg://(\w+):(\w+)@postgres:5432/(\w+)", SCHEDULER["KAFKA_REPLICATION_STORE_URL"]
    )
    assert url is not None
    sql = STORE_SQL.read_text()
    assert f"CREATE ROLE {url[1]} LOGIN" in sql
    assert f"CREATE DATABASE {url[3]} OWNER {url[1]};" in sql
    assert "\\getenv password STORE_PASSWORD" in sql
    assert SERVICES["postgres"]["environment"]["STORE_PASSWORD"] == url[2]


# What runs


def test_every_airflow_service_runs_a_command_that_airflow_has() -> None:
    commands = {name: each["command"] for name, each in AIRFLOW.items() if name != "airflow-init"}
    assert {name.removeprefix("airflow-") for name in commands} == {
        "api-server",
        "scheduler",
        "dag-processor",
        "triggerer",
    }
    for name, command in commands.items():
        assert command == [name.removeprefix("airflow-")]
        assert (installed("airflow") / "cli" / "commands" / f"{command[0].replace('-', '_')}_command.py").is_file()


def test_the_first_service_migrates_the_database_with_a_script_that_bash_accepts() -> None:
    shell, option, script = SERVICES["airflow-init"]["command"]
    assert (shell, option) == ("bash", "-c")
    assert "airflow db migrate" in script
    subprocess.run(["bash", "-n", "-c", script], check=True)


def test_every_airflow_setting_is_one_that_this_airflow_has() -> None:
    options = yaml.safe_load((installed("airflow") / "config_templates" / "config.yml").read_text())
    settings = [name.lower().split("__", 2)[1:] for name in SCHEDULER if name.startswith("AIRFLOW__")]
    assert settings
    assert [(section, key) for section, key in settings if key not in options[section]["options"]] == []


def test_the_spark_services_run_classes_that_this_spark_has() -> None:
    with zipfile.ZipFile(next((installed("pyspark") / "jars").glob("spark-core_*.jar"))) as jar:
        for name in ("spark-master", "spark-worker"):
            program, main, *_ = SERVICES[name]["command"]
            assert (installed("pyspark") / "bin" / program).is_file()
            assert f"{main.replace('.', '/')}.class" in jar.namelist()


# What is open, and what is secret


def test_every_published_port_is_on_this_machine_only_and_can_be_chosen() -> None:
    published = [port for each in RAW["services"].values() for port in each.get("ports", [])]
    assert len(published) == 5
    for port in published:
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z_]+:-\d+\}:\d+", port), port
    assert len({interpolated(port).split(":")[1] for port in published}) == len(published)


def test_every_variable_has_a_default_and_is_documented() -> None:
    documented = (ROOT / "docs" / "deployment.md").read_text()
    for found in VARIABLE.finditer(yaml.safe_dump(RAW, width=10_000)):
        assert found["default"], found[0]
        assert f"`{found['name']}`" in documented, found[0]


def test_every_password_and_key_can_be_replaced() -> None:
    for service in RAW["services"].values():
        for name, value in service.get("environment", {}).items():
            if re.search(r"(PASSWORD|SECRET|FERNET_KEY|SECRET_KEY)$", name):
                assert VARIABLE.fullmatch(value), name
            if "://" in value and "@" in value:
                assert re.search(r"//\w+:\$\{[A-Z_]+:-\w+\}@", value), name


def test_what_one_airflow_service_signs_or_encrypts_the_others_can_read() -> None:
    shared = [
        {key: value for key, value in each["environment"].items() if not key.startswith("ADMIN_")}
        for each in AIRFLOW.values()
    ]
    assert all(each == shared[0] for each in shared)
    assert len(base64.urlsafe_b64decode(SCHEDULER["AIRFLOW__CORE__FERNET_KEY"])) == 32
    assert len(SCHEDULER["AIRFLOW__API_AUTH__JWT_SECRET"]) >= 64, "HS512 asks for 64 bytes (RFC 7518, 3.2)"
    assert SCHEDULER["AIRFLOW__CORE__LOAD_EXAMPLES"] == "false"
