"""What becomes of a MirrorMaker 2 properties file: each expected selection of topics is what MirrorMaker's classes answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from kafka_replication.cli.commands import app
from kafka_replication.config import Replication
from kafka_replication.config.mirrormaker import KEYS, flows, properties, translated
from kafka_replication.config.reading import load_replication
from kafka_replication.model.errors import BadInput

SECRET = "s3cret-word"
FILE = rf"""# two clusters, both directions
clusters = primary, Backup
primary.bootstrap.servers = p1:9093,p2:9093
Backup.bootstrap.servers = b1:9092
primary.security.protocol = SASL_SSL
primary.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="mm2" password="{SECRET}";
primary.ssl.truststore.location = /etc/kafka/trust.jks
primary.ssl.truststore.password = {SECRET}
primary->Backup.enabled = true
primary->Backup.topics = orders, audit\\..*
Backup->primary.enabled = true
topics.blacklist = .*\\.replica, test-.*
replication.factor = 3
sync.topic.acls.enabled = false
exactly.once.source.support = enabled
sync.group.offsets.enabled = true
our.password = {SECRET}
"""


def test_each_flow_becomes_a_file_and_what_has_no_place_is_named(tmp_path: Path) -> None:
    given = tmp_path / "mm2.properties"
    given.write_text(FILE)
    ended = CliRunner().invoke(app, ["init", str(tmp_path), "--from", str(given)])
    assert ended.exit_code == 0, ended.stderr
    assert {path.name for path in tmp_path.glob("*.yaml")} == {"primary-to-backup.yaml", "backup-to-primary.yaml"}
    file = tmp_path / "primary-to-backup.yaml"
    assert yaml.safe_load(file.read_text()) == {
        "name": "primary-to-backup",
        "source": {"connection": "kafka_primary"},
        "target": {"connection": "kafka_backup"},
        "topics": {
            "include": ["orders", r"^audit\..*$"],
            "exclude": [
                r"^.*\.replica$",
                "^test-.*$",
                "heartbeats",
                r"^mm2.*\.internal$",
                r"^.*\.checkpoints\.internal$",
                r"^\.",
                r"^(?:.*\.)?Backup\.",
            ],
            "rename": "primary.{topic}",
        },
        "target_topics": {"replication_factor": 3},
        "groups": {"include": ["^.*$"], "exclude": ["^console-consumer-.*$", "^connect-.*$", "^__.*$"]},
    }
    load_replication(file)
    for text in (file.read_text(), ended.stderr):
        assert "our.password: not known here" in text
        assert "acls" not in text and "exactly.once" not in text and SECRET not in text
    line = next(line for line in ended.stderr.splitlines() if "AIRFLOW_CONN_KAFKA_PRIMARY=" in line)
    assert json.loads(line.partition("'")[2].rstrip("'"))["extra"] == {
        "bootstrap.servers": "p1:9093,p2:9093",
        "security.protocol": "SASL_SSL",
        "sasl.username": "mm2",
        "sasl.password": "<password>",
        "ssl.ca.location": "<certificates of the truststore, as PEM>",
    }
    again = CliRunner().invoke(app, ["init", str(tmp_path), "--from", str(given)])
    assert again.exit_code == 2 and "is there already" in again.stderr


def _replication(*lines: str) -> Replication:
    both = ["clusters = a, b", "a->b.enabled = true", *lines]
    (flow,) = [flow for flow in flows(properties("\n".join(both).encode())) if str(flow) == "a->b"]
    return Replication.model_validate(translated(flow).document)


@pytest.mark.parametrize(
    ("lines", "copied", "left_out"),
    [
        pytest.param((), {"orders": "a.orders", "c.x": "a.c.x"}, ["b.x", "c.b.x", "mm2-x.internal", "x.replica"], id="defaults"),
        pytest.param(("topics = o|p",), {"o": "a.o", "p": "a.p"}, ["op", "xp"], id="whole names, as MirrorMaker fits them"),
        pytest.param((r"topics = eu\\.o",), {"eu.o": "a.eu.o"}, ["eu-o"], id="an escaped dot is a name"),
        pytest.param(("topics = eu.o",), {"eu-o": "a.eu-o"}, ["eu.oo"], id="a dot is any character"),
        pytest.param(("topics = o, p.*, b.x", "topics.exclude = o"), {"p1": "a.p1"}, ["o", "b.x"], id="a name left out"),
        pytest.param(("replication.policy.separator = _",), {"o": "a_o", "b.x": "a_b.x"}, ["b_x"], id="a separator"),
        pytest.param(
            ("replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy",),
            {"o": "o", "b.x": "b.x"},
            ["heartbeats", "b.checkpoints.internal", "__consumer_offsets"],
            id="names are kept",
        ),
        pytest.param(("a->b.topics = p", "topics = o"), {"p": "a.p"}, ["o"], id="the flow's own setting counts"),
    ],
)  # fmt: skip
def test_the_same_topics_under_the_same_names(
    lines: tuple[str, ...], copied: dict[str, str], left_out: list[str]
) -> None:
    replication = _replication(*lines)
    assert {topic: replication.target_name(topic) for topic in copied if replication.selects(topic)} == copied
    assert not [topic for topic in left_out if replication.selects(topic)]


def test_settings_are_followed_where_the_file_asks_for_it() -> None:
    assert _replication("sync.topic.configs.enabled = true").target_topics.follow == "apply"
    for key in ("config.properties.exclude", "config.properties.blacklist"):
        excluding = _replication(f"sync.topic.configs.enabled = true\n{key} = retention\\\\.ms, follower.*")
        assert excluding.target_topics.follow_except == ("retention.ms", "^follower.*$")
    assert _replication().target_topics.follow == "report"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param(("replication.policy.class = our.Policy",), "our.Policy", id="a policy of their own"),
        pytest.param(("topic.filter.class = our.Filter",), "our.Filter", id="a filter of their own"),
        pytest.param((r"topics = \\p{Alpha}+",), "topics: '\\p{Alpha}+'", id="an expression of Java alone"),
        pytest.param(("a->b.enabled = false",), "no flow is enabled", id="no flow"),
    ],
)
def test_what_is_not_known_is_refused(lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        _replication(*lines)
    assert said in str(refused.value)


def test_properties_are_read_as_java_does() -> None:
    text = " ! no\r\na:1\n b  2 \n\\u0063\\ d\\=e = x\\\\\\ty\\\n   \\#z\n\nlast=\nof=two=\\\\\\\nlines\\"
    assert properties(text.encode()) == {"a": "1", "b": "2", "c d=e": "x\\\ty#z", "last": "", "of": "two=\\lines"}


def test_the_docs_tell_of_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "from-mirrormaker.md").read_text()
    assert not [key for key in KEYS if f"`{key}`" not in page]
