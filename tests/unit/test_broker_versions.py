"""The findings about brokers of each release, from what they say in ApiVersions."""

from __future__ import annotations

import pytest

from kafka_replication.planning.broker_versions import findings

# Metadata and DescribeTransactions, as brokers of these releases answered.
OF_2_7, OF_2_8, OF_3_0 = {3: 9}, {3: 11}, {3: 11, 65: 0}


@pytest.mark.parametrize(
    ("newest", "found"),
    [
        pytest.param(OF_2_7, {"error": "2.8", "warning": "3.0"}, id="2.7"),
        pytest.param(OF_2_8, {"warning": "3.0"}, id="2.8"),
        pytest.param(OF_3_0, {}, id="3.0"),
    ],
)
def test_each_need_is_told_with_the_first_release_that_has_it(newest: dict[int, int], found: dict[str, str]) -> None:
    told = {str(finding.severity): finding for finding in findings("the target", newest)}
    assert told.keys() == found.keys()
    assert all(f"older than Kafka {release}:" in told[severity].what for severity, release in found.items())
    assert all(finding.remedy and finding.where == "the target" for finding in told.values())


@pytest.mark.parametrize(("newest", "told"), [(OF_3_0, True), (OF_3_0 | {55: 0}, False)])
def test_zookeeper_is_named_where_a_right_with_a_slash_is_missing(newest: dict[int, int], told: bool) -> None:
    remedy = "kafka-acls.sh --add --group kafka-replication/orders"
    assert bool(list(findings("the target", newest, [remedy]))) is told
    assert not list(findings("the target", newest, ["kafka-acls.sh --add --topic orders"]))
