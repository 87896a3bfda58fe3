"""Ids of log lines: at the end of the text, and an attribute of the record."""

from __future__ import annotations

import logging

import pytest

from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger("kafka_replication.test")


def test_a_line_ends_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_event(log, logging.INFO, Event.CHUNK_COMMITTED, "%s: 100%% of %d", "orders-3", 7)
    assert caplog.messages == ["orders-3: 100% of 7 [chunk-committed]"]
    [record] = caplog.records
    assert vars(record)["event"] is Event.CHUNK_COMMITTED and record.filename == "test_events.py"


def test_fields_are_attributes_of_the_record(caplog: pytest.LogCaptureFixture) -> None:
    log_event(log, logging.ERROR, Event.COPY_FAILED, "orders-3", fields={"partition": 3})
    assert vars(caplog.records[0])["partition"] == 3 and caplog.messages == ["orders-3 [copy-failed]"]


def test_below_its_level_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_event(log, logging.INFO, Event.COPY_STARTED, "%s")
    assert caplog.records == []


def test_ids_are_unique_and_in_kebab_case() -> None:
    ids = [event.value for event in Event]
    assert len(set(ids)) == len(ids)
    assert all(each == each.lower() and "_" not in each and " " not in each for each in ids)
