"""What spark-submit is given: fast ways in local mode, nothing of them on a cluster, and the user's settings always."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kafka_replication.connections import SparkConnection
from kafka_replication.spark import local, submit
from kafka_replication.spark.submit import TerminalSubmission
from kafka_replication.spark.workspace import PACKAGE, Workspace, without_secrets, workspace

CLUSTERS = ["spark://master:7077", "yarn", "k8s://https://kube:443", "local-cluster[2,1,1024]"]
JAVA = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No options of this machine's own. Returns the folder of Spark's configuration files."""
    for name in (*JAVA, "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


def command(here: Workspace, master: str, conf: dict[str, str]) -> list[str]:
    return TerminalSubmission(SparkConnection(master, {}), conf).command(here, "name")


def settings(master: str, own: dict[str, str] | None = None) -> dict[str, str]:
    return submit.conf_for(master, own or {})


@pytest.mark.parametrize("master", CLUSTERS)
def test_a_cluster_gets_the_package_as_a_zip_and_nothing_of_local_mode(master: str) -> None:
    with workspace() as here:
        argv = command(here, master, {})
        assert argv[argv.index("--py-files") + 1] == str(here.package)
        assert "kafka_replication/spark/worker.py" in zipfile.ZipFile(here.package).namelist()
        assert not here.links.exists()
        text = " ".join(argv)
        assert "extraJavaOptions" not in text and local.DAEMON not in text and "-XX:" not in text
        added = set(submit.environment(master, here)) - set(without_secrets())
        assert added <= {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"}


def test_files_of_the_user_go_with_the_package() -> None:
    """On its own, --py-files would replace them."""
    own = {submit.PY_FILES: "/opt/shop.zip,/opt/more.py"}
    with workspace() as here:
        argv = command(here, CLUSTERS[0], own)
        assert argv[argv.index("--py-files") + 1] == f"{here.package},/opt/shop.zip,/opt/more.py"
        local_argv = command(here, "local[2]", own)
        assert local_argv[local_argv.index("--py-files") + 1] == "/opt/shop.zip,/opt/more.py"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]"])
def test_local_mode_needs_no_zip(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")
    with workspace() as here:
        argv = command(here, master, {})
        assert "--py-files" not in argv and not here.package.exists()
        variables = submit.environment(master, here)
        assert variables["PYTHONPATH"].split(os.pathsep) == [str(here.links), "/of/the/user"]
    assert settings(master)["spark.python.daemon.module"] == local.DAEMON
    assert settings(master)[local.OPTIONS] == " ".join(local.QUICK)


def test_processes_of_local_mode_import_compiled_modules_and_not_a_zip(tmp_path: Path) -> None:
    """As spark-submit starts them: its zip of PySpark is before everything else."""
    with workspace() as here:
        command(here, "local[2]", {})
        zips = [str(path) for path in (submit.spark_home() / "python" / "lib").glob("*.zip")]
        assert zips
        program = (
            "from kafka_replication.spark.start import prefer_linked; prefer_linked();"
            "import kafka_replication, py4j, pyspark;"
            "print(kafka_replication.__file__, py4j.__file__, pyspark.__file__)"
        )
        path = os.pathsep.join([*zips, str(here.links)])
        asked = [sys.executable, "-c", program]
        done = subprocess.run(
            asked, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True
        )
        files = [Path(each) for each in done.stdout.split()]
        assert [each.parent for each in files] == [
            here.links / name for name in ("kafka_replication", "py4j", "pyspark")
        ]
        assert files[0].samefile(PACKAGE / "__init__.py")


@pytest.mark.parametrize(
    "own",
    [
        {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"},
        {"spark.driver.extraJavaOptions": ""},
        {"spark.driver.defaultJavaOptions": "-Dx=y"},
    ],
)
def test_java_options_in_the_user_s_settings_are_left_as_they_are(own: dict[str, str]) -> None:
    made = settings("local[2]", own)
    assert {name: value for name, value in made.items() if "JavaOptions" in name} == own


@pytest.mark.parametrize("name", JAVA)
def test_java_options_in_the_environment_are_not_contradicted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "-Dx=y")
    assert local.OPTIONS in settings("local[2]"), "nothing that could contradict"
    monkeypatch.setenv(name, "-Dx=y -XX:+UseG1GC")
    assert local.OPTIONS not in settings("local[2]")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("spark-defaults.conf", "spark.driver.extraJavaOptions -XX:+UseG1GC\n"),
        ("java-opts", "-XX:+UseG1GC\n"),
        ("spark-env.sh", "SPARK_SUBMIT_OPTS=-XX:+UseG1GC\n"),
    ],
)
def test_java_options_in_spark_s_own_files_are_not_contradicted(plain: Path, file: str, text: str) -> None:
    (plain / file).write_text(text)
    assert local.OPTIONS not in settings("local[2]")


def test_every_setting_of_the_user_wins() -> None:
    ours = settings("local[2]")
    theirs = dict.fromkeys(ours, "theirs")
    assert settings("local[2]", theirs) == theirs


@pytest.mark.parametrize(
    "name",
    [
        "AIRFLOW_CONN_KAFKA_SOURCE",
        "AIRFLOW_VAR_KAFKA_REPLICATION_STORE_URL",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
        "_AIRFLOW__STARTUP_MSG",
        "KAFKA_REPLICATION_STORE_URL",
    ],
)
@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_spark_gets_the_environment_without_what_holds_secrets(
    name: str, master: str, monkeypatch: pytest.MonkeyPatch, plain: Path
) -> None:
    monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OF_THE_USER", "kept")
    made = submit.environment(master, Workspace(plain))
    assert name not in made
    assert made["OF_THE_USER"] == "kept"


def starting(conf: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """A call of spark-submit in local mode, and the environment for it."""
    with workspace() as here:
        return command(here, "local[2]", conf), submit.environment("local[2]", here)


def test_java_is_started_as_the_scripts_of_spark_would(plain: Path) -> None:
    (plain / "spark-defaults.conf").write_text("spark.driver.memory 700m\n")
    argv, variables = starting({"spark.app.name": "a b", "spark.driver.extraClassPath": "/of/the user"})
    direct = local.without_scripts(argv, variables)
    scripts = subprocess.run(
        argv, env={**variables, "SPARK_PRINT_LAUNCH_COMMAND": "1"}, check=False, capture_output=True, text=True
    )
    [said] = [line for line in scripts.stderr.splitlines() if line.startswith("Spark Command: ")]
    assert " ".join(direct) == said.removeprefix("Spark Command: ")
    assert {"-Xmx700m", "spark.app.name=a b"} <= set(direct)


def test_scripts_that_have_more_to_do_are_called(plain: Path, tmp_path: Path) -> None:
    argv, variables = starting({})
    assert local.without_scripts(argv, variables) != argv
    assert local.without_scripts(argv, variables | {"SPARK_LAUNCHER_OPTS": "-Xmx1g"}) == argv
    assert local.without_scripts(argv, variables | {"SPARK_HOME": str(tmp_path)}) == argv, "it has no launcher"
    (plain / "spark-env.sh").write_text("export SOMETHING=1\n")
    assert local.without_scripts(argv, variables) == argv


def test_scripts_say_what_is_wrong_with_java(monkeypatch: pytest.MonkeyPatch) -> None:
    argv, variables = starting({})
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert local.without_scripts(argv, variables) == argv
