"""Faults of the watermark store and of the ledger."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import time
from contextlib import closing

from confluent_kafka import Producer

from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from tests.faults import profiles
from tests.faults.load import PARTITIONS
from tests.faults.row import Row
from tests.faults.trial import Trial, TrialFailed

PART = 150 * profiles.current().longer  # source offsets of each partition that a first, bounded run copies


def locked(trial: Trial) -> None:
    run = trial.start()
    trial.middle(run)
    with closing(sqlite3.connect(trial.store, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        trial.note("the store is locked")
        time.sleep(2 + trial.dice.random() * 8)
        other.execute("ROLLBACK")
    trial.finish(run)


def gone_for_a_while(trial: Trial) -> None:
    run = trial.start()
    trial.middle(run)
    away = trial.store.parent.with_name("away")
    trial.store.parent.rename(away)
    trial.note("the store is gone")
    time.sleep(trial.dice.random() * 8)
    away.rename(trial.store.parent)
    trial.finish(run)


def restored_from_backup(trial: Trial) -> None:
    """The watermark lies behind the ledger: nothing is copied again."""
    trial.part(PART)
    backup = trial.folder / "backup"
    shutil.copytree(trial.store.parent, backup)
    trial.whole()
    shutil.rmtree(trial.store.parent)
    backup.rename(trial.store.parent)
    trial.whole(copied=0)


def emptied(trial: Trial) -> None:
    trial.part(PART)
    shutil.rmtree(trial.store.parent)
    trial.store.parent.mkdir()
    trial.note("the store is empty")


def _lose_the_store(trial: Trial) -> None:
    """Whoever has it open keeps it; whoever opens it finds a new one."""
    trial.store.parent.rename(trial.store.parent.with_name("lost"))
    trial.store.parent.mkdir()
    trial.note("the store is empty")


def emptied_during(trial: Trial) -> None:
    """The lease and the plan go with it while a run holds them."""
    run = trial.start()
    trial.middle(run)
    _lose_the_store(trial)
    trial.finish(run)


def emptied_under_a_sleeper(trial: Trial) -> None:
    """While a run stands still, its store is emptied and another run begins in the new one."""
    trial.copy["transaction_timeout"] = 30
    frozen = trial.sleeper(most=8)
    _lose_the_store(trial)
    other = trial.start()
    other.await_chunks(1)
    frozen.kill(signal.SIGCONT)
    trial.finish(frozen)
    trial.finish(other)


def edited_ahead(trial: Trial) -> None:
    trial.part(PART)
    partition = trial.dice.randrange(PARTITIONS)
    with closing(sqlite3.connect(trial.store)) as store:
        store.execute(
            "UPDATE kafka_replication_watermarks SET next_offset = next_offset + 50 WHERE source_partition = ?",
            (partition,),
        )
        store.commit()
    trial.note(f"partition {partition}: watermark 50 ahead")


def ledger_deleted(trial: Trial) -> None:
    trial.part(PART)
    for topic in (POSITIONS, RECEIPTS):
        trial.bench.target.direct.delete(topic)


def _write(trial: Trial, key: bytes, value: bytes | None, partition: int) -> None:
    producer = Producer({"bootstrap.servers": trial.bench.target.direct.bootstrap})
    producer.produce(POSITIONS, value, key, partition)
    if producer.flush(30):
        raise TrialFailed("the ledger did not take the foreign record")


def _over_position(trial: Trial, value: bytes) -> None:
    trial.part(PART)
    key = trial.key(trial.dice.randrange(PARTITIONS))
    _write(trial, key.entry("position"), value, key.ledger_partition)


def malformed(trial: Trial) -> None:
    _over_position(
        trial, trial.dice.choice([b"", b"{}", b"nonsense", b"[1]", b'{"format":1,"type":"position"}', b"\xff\xfe"])
    )


def newer(trial: Trial) -> None:
    _over_position(trial, b'{"format":2,"type":"position"}')


def foreign_key(trial: Trial) -> None:
    """Somebody's record under a key that is not ours: named in the log and passed over."""
    trial.part(PART)
    _write(trial, b"foreign-%d" % trial.dice.randrange(1000), b"whatever", trial.dice.randrange(16))


ROWS = (
    Row("store-locked", locked),
    Row("store-gone-for-a-while", gone_for_a_while),
    Row("store-restored-from-backup", restored_from_backup),
    Row("store-emptied", emptied),
    Row("store-emptied-during", emptied_during),
    Row("store-emptied-under-a-sleeper", emptied_under_a_sleeper),
    Row("store-edited-ahead", edited_ahead, expected="it was lost or went back", ignore=("lost",), sampled=False),
    Row("ledger-deleted", ledger_deleted, expected="it was lost or went back", sampled=False),
    Row("ledger-malformed", malformed, expected="LedgerUnreadable", sampled=False),
    Row("ledger-newer-format", newer, expected="has format 2, this version read", sampled=False),
    Row("ledger-foreign-key", foreign_key),
)
