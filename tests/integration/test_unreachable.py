"""A cluster that does not answer, and files that are wrong: one message, soon, with the right exit code."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
import yaml

from kafka_replication.model.errors import Unreachable
from kafka_replication.runs.run import Request
from tests.support import whole_runs
from tests.support.addresses import Addresses
from tests.support.command_line import cli, ended
from tests.support.jobs import no_launch
from tests.support.leases import holder_of
from tests.support.scenario import Scenario, numbered, send


@pytest.fixture
def silent() -> Iterator[str]:
    """A port where a program listens that does not speak Kafka."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


NOWHERE = "no-such-host.invalid:9092"


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_run_names_the_host(scene: Scenario, closed: str, silent: str, side: str) -> None:
    scene.source.create(scene.topic)
    for address in (closed, NOWHERE, silent):
        there = Addresses(scene.source.bootstrap, scene.target.bootstrap)
        connections = replace(there, source=address) if side == "source" else replace(there, target=address)
        with pytest.raises(Unreachable) as failed:
            whole_runs.run(scene.replication(timeouts={"request": 4}), connections, scene.store, no_launch, Request())
        assert address in failed.value.what and failed.value.remedy
        assert holder_of(scene.store, scene.name) is None  # given back


@pytest.mark.slow  # runs name it above
def test_the_command_line_names_the_host(scene: Scenario, closed: str, silent: str) -> None:
    """With the defaults of a user's file; all at the same time, for each waits out its time-out."""
    asked = []
    for number, address in enumerate((closed, NOWHERE, silent)):
        text = yaml.safe_dump(scene.document(name=f"{scene.name}-{number}"))  # a lease of its own
        asked.append((address, cli(scene, text, address, "run" if address == closed else "check")))
    found = [(address, ended(process)) for address, process in asked]
    for address, (code, out, err) in found:
        assert code == 1
        assert f"source {address} (connection 'source')" in (err if address == closed else out), out + err


def test_json_output_stays_one_document(scene: Scenario, closed: str) -> None:
    code, out, _ = ended(
        cli(scene, yaml.safe_dump(scene.document(timeouts={"request": 3})), closed, "status", "--json")
    )
    assert code == 1
    document = json.loads(out)
    assert (document["error_id"], closed in document["error"]) == ("unreachable", True)


def test_status_with_one_cluster_away(scene: Scenario, closed: str) -> None:
    """What the store, the ledger and the other cluster know is shown, and who does not answer."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, numbered(7, 50))
    text = yaml.safe_dump(scene.document(timeouts={"request": 3}))
    asked = {
        "source": cli(scene, text, closed, "status", "--json"),
        "target": cli(scene, text, scene.source.bootstrap, "status", "--json", target=closed),
    }
    for side, process in asked.items():
        code, out, err = ended(process)
        assert code == 1, err
        document = json.loads(out)
        [row] = document["partitions"]
        assert (row["state"], row["watermark"]) == ("does not answer", 50)
        assert closed in row["error"] and f"connection '{side}'" in row["error"] and row["remedy"]
        assert [closed in problem for problem in document["problems"]] == [True]
        known = (57, 7, "unknown") if side == "target" else (None, None, "digest")
        assert (row["source_end"], row["lag"], row["verified_by"]) == known


def test_check_and_plan_with_one_cluster_away(scene: Scenario, closed: str) -> None:
    """What the other cluster, its ledger and the file show is said all the same; then who is away, and why."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    assert scene.run().outcome == "done"
    scene.target.delete(scene.topic)
    scene.target.create(scene.topic, config={"message.timestamp.type": "LogAppendTime"})
    somebody = scene.source.transactional()
    somebody.begin_transaction()
    send(somebody, scene.topic, numbered(1))
    text = yaml.safe_dump(scene.document(timeouts={"request": 3}))
    source = scene.source.bootstrap
    asked = {
        ("target", "check"): cli(scene, text, source, "check", "--json", target=closed),
        ("target", "plan"): cli(scene, text, source, "plan", "--json", target=closed),
        ("source", "check"): cli(scene, text, closed, "check", "--json"),
        ("source", "plan"): cli(scene, text, closed, "plan", "--json"),
    }
    shown = {"target": ["a transaction is open"], "source": ["was re-created", "LogAppendTime"]}
    for (away, command), process in asked.items():
        code, out, err = ended(process)
        assert code == 1, err
        document = json.loads(out)
        errors = [one["what"] for one in document["findings"] if one["severity"] == "error"]
        assert [f"connection '{away}'" in what and closed in what for what in errors].count(True) == 1, errors
        for said in shown[away]:
            assert any(said in one["what"] for one in document["findings"]), (away, command, document)
        assert "partitions" not in document  # nothing is invented
        assert document["error_id"] == "unreachable" and closed in document["error"]
    somebody.abort_transaction(30)


def test_commands_on_living_clusters(scene: Scenario) -> None:
    """check and status say so with exit code 0; an unknown topic is 1, a wrong file 2."""
    scene.source.create(scene.topic)
    good = yaml.safe_dump(scene.document())
    unknown = yaml.safe_dump(scene.document(topics={"include": [f"{scene.name}-nowhere"]}))
    asked = {
        "check": cli(scene, good, scene.source.bootstrap, "check", "--json"),
        "plan": cli(scene, good, scene.source.bootstrap, "plan", "--json"),
        "unknown": cli(scene, unknown, scene.source.bootstrap, "check"),
        "syntax": cli(scene, "name: [", scene.source.bootstrap, "check"),
        "key": cli(scene, good + "colour: blue\n", scene.source.bootstrap, "check"),
        "time": cli(scene, good, scene.source.bootstrap, "run", "--until", "tomorrow"),
    }
    found = {name: ended(process) for name, process in asked.items()}
    assert {name: code for name, (code, _, _) in found.items()} == {
        "check": 0,
        "plan": 0,
        "unknown": 1,
        "syntax": 2,
        "key": 2,
        "time": 2,
    }
    assert json.loads(found["check"][1])["ok"] is True
    assert [each["state"] for each in json.loads(found["plan"][1])["partitions"]] == ["not opened yet"]
    assert "colour" in found["key"][2] and "unknown source topic" in found["unknown"][2]
