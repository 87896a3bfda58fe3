"""Faults with OpenSearch as the target: those of its node and of the way to it, and those of our own processes."""

from __future__ import annotations

import json
import random
import signal
import time
from base64 import b64decode
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

from tests.faults import load, our_rows, store_rows
from tests.faults.bench import Bench
from tests.faults.load import FIRST_TIME, Load
from tests.faults.row import Row
from tests.faults.search_side import LEDGER, Hammer, SearchSide
from tests.faults.trial import Trial, TrialFailed
from tests.support.checker import Record
from tests.support.http_proxy import Answer, Pass, writes_documents
from tests.support.scenario import Rec

SHORT = {"timeouts": {"request": 3}}
STALL = 4  # seconds; shorter than some faults, so that runs give up, too
MANY = 100_000
LARGE_CHUNKS = {"chunk_records": 20_000, "transaction_timeout": 120}
PROFILES = ("", "latest")  # the others are about Kafka's topics, or were not tried here
BLOCK = "index.blocks.read_only_allow_delete"


def _side(trial: Trial) -> SearchSide:
    assert isinstance(trial.bench.elsewhere, SearchSide)
    return trial.bench.elsewhere


def node_killed(trial: Trial) -> None:
    run = trial.start()
    trial.middle(run)
    trial.note("killing the node")
    _side(trial).server.kill()
    time.sleep(trial.dice.random() * 8)
    _side(trial).server.start()
    trial.note("the node is back")
    trial.finish(run)


def node_frozen(trial: Trial) -> None:
    """SIGSTOP for longer than the client waits for an answer."""
    trial.settings |= SHORT
    run = trial.start()
    trial.middle(run)
    process = _side(trial).server.process
    assert process is not None
    trial.note("freezing the node")
    process.send(signal.SIGSTOP)
    time.sleep(4 + trial.dice.random() * 8)
    process.send(signal.SIGCONT)
    trial.note("the node woke up")
    trial.finish(run)


def blocked(index: Callable[[Trial], str], trial: Trial) -> None:
    """As a node does that has nearly no disk left; for shorter or longer than a copy waits."""
    trial.copy["stall_timeout"] = STALL
    run = trial.start()
    trial.middle(run, most=15)
    _side(trial).set(index(trial), **{BLOCK: True})
    trial.note(f"{index(trial)} is blocked")
    time.sleep(trial.dice.random() * 3 * STALL)
    _side(trial).set(index(trial), **{BLOCK: None})
    trial.note("it is not any more")
    trial.finish(run)


def storm(trial: Trial) -> None:
    """Others write so much that the node refuses requests, of ours too."""
    run = trial.start()
    trial.middle(run, most=10)
    with closing(Hammer(_side(trial), f"{trial.name}.of-others")) as hammer:
        trial.note("others write, too")
        time.sleep(5 + trial.dice.random() * 10)
    trial.note(f"others were refused {hammer.refused} times; of our requests {run.text.count(' 429 ')} were")
    trial.finish(run)
    if not hammer.refused:
        raise TrialFailed("the node was not busy enough to refuse anything")


def slow(trial: Trial) -> None:
    """Every answer comes late, some of them too late."""
    trial.settings |= SHORT
    dice = random.Random(trial.seed)

    def late(path: str, body: bytes, passed: Pass) -> Answer:
        time.sleep(4 if dice.randrange(60) == 0 else dice.random() * 0.2)
        return passed(body)

    run = trial.start()
    trial.middle(run, most=10)
    _side(trial).proxy.wanted, _side(trial).proxy.fault = lambda method, path: True, late
    trial.note("the node is slow")
    trial.finish(run)
    _side(trial).proxy.behave()


def answer_lost(wanted: Callable[[str, str], bool], trial: Trial) -> None:
    """It is written, and nobody hears of it."""
    dice, lost = random.Random(trial.seed), [0]

    def losing(path: str, body: bytes, passed: Pass) -> Answer | None:
        answer = passed(body)
        if lost[0] < 4 and dice.randrange(3) == 0:
            lost[0] += 1
            return None
        return answer

    proxy = _side(trial).proxy
    run = trial.start()
    trial.middle(run, most=10)
    proxy.wanted, proxy.fault = wanted, losing
    trial.finish(run)
    proxy.behave()
    trial.note(f"{lost[0]} answers were lost")
    if not lost[0]:
        raise TrialFailed("no answer was there to be lost: the run was over too soon")


def commits(method: str, path: str) -> bool:
    return method == "PUT" and path.startswith(f"/{LEDGER}/_")


def index_deleted(trial: Trial) -> None:
    """In the middle of a run, whose next request creates another one."""
    run = trial.start()
    trial.middle(run)
    trial.limits = {partition: trial.load.ends[partition] for partition in trial.load.ends}
    _side(trial).ask("DELETE", trial.target_topic)
    trial.note("deleted the index")
    if trial.finish(run) == "done":
        raise TrialFailed("all was copied before the index was deleted")


def mapping_conflict(trial: Trial) -> None:
    """One record among very many has another type in a field: it is named, and ends its partition there."""
    trial.settings["target"] = {"connection": "target", "type": "opensearch"}
    trial.copy |= LARGE_CHUNKS
    run = trial.start()
    trial.finish(run)
    trial.hit = time.monotonic()
    bad, _ = _conflicting(trial.load)
    trial.limits = {0: bad}
    if not any(f"offset {bad}" in error for error in run.errors):
        raise TrialFailed(f"the record at offset {bad} was to be named: {run.errors}")


def conflicting_is_set_aside(trial: Trial) -> None:
    """The same where such records are set aside, by a run that goes on after another one was killed: all others are on
    the target, and the quarantine has this one, with its reason and its bytes.
    """
    trial.settings |= {
        "target": {"connection": "target", "type": "opensearch"},
        "failures": {"policy": "quarantine"},
    }
    trial.copy |= LARGE_CHUNKS
    run = trial.start()
    trial.middle(run, most=3)
    run.kill()
    if trial.finish(trial.start()) != "done":
        raise TrialFailed(f"the record was to be set aside: {trial.attempts[-1].errors}")
    bad, record = _conflicting(trial.load)
    _side(trial).ask("POST", f"{trial.quarantine_topic}/_refresh")
    hits = _side(trial).ask("POST", f"{trial.quarantine_topic}/_search", {"size": 10})["hits"]["hits"]
    aside = [hit["_source"] for hit in hits]
    found = [(one["kafka"]["offset"], b64decode(one["content"]["value"])) for one in aside]
    if found != [(bad, record.value)] or "mapper_parsing_exception" not in json.dumps(aside):
        raise TrialFailed(f"the record at offset {bad} was to be set aside with its reason: {aside}")


def _conflicting(of: Load) -> tuple[int, Record]:
    [found] = [(offset, record) for offset, record in of.records[0] if is_conflicting(record)]
    return found


def of_orders(bench: Bench, topic: str, seed: int) -> Load:
    source, dice = bench.source.direct, random.Random(seed)
    source.create(topic)
    bad = dice.randrange(MANY // 2, MANY)
    documents = ({"n": "no number" if n == bad else n, "name": f"order {n}"} for n in range(MANY))
    source.produce(
        topic, (Rec(b"%d" % n, json.dumps(one).encode(), (), FIRST_TIME + n) for n, one in enumerate(documents))
    )
    return load.look(source, topic)


def without_the_conflicting(bench: Bench, topic: str, seed: int) -> Load:
    """Of which the target must not have the record that is `refused`."""
    made = of_orders(bench, topic, seed)
    return replace(made, profile=replace(made.profile, aside=lambda record: False))


def is_conflicting(record: Record) -> bool:
    return b"no number" in (record.value or b"")


# What does not depend on the target's kind is done to this one, too.
AGAIN = (
    *(row for row in our_rows.ROWS),
    *(row for row in store_rows.ROWS if row.name in ("store-emptied", "store-emptied-during")),
)
ROWS = tuple(
    replace(row, bench=Bench.with_opensearch, sampled=False)
    for row in (
        Row("opensearch-killed", node_killed, "core"),
        Row("opensearch-frozen", node_frozen, "core"),
        Row("opensearch-index-blocked", partial(blocked, lambda trial: trial.target_topic), "core"),
        Row("opensearch-ledger-blocked", partial(blocked, lambda trial: LEDGER), "core"),
        Row("opensearch-429-storm", storm, "core"),
        Row("opensearch-slow", slow, "core"),
        Row("opensearch-write-answer-lost", partial(answer_lost, writes_documents), "core"),
        Row("opensearch-commit-answer-lost", partial(answer_lost, commits), "core"),
        Row(
            "opensearch-index-deleted",
            index_deleted,
            "core",
            expected="was deleted|was created again|was re-created or deleted",
            ignore=("lost",),
        ),
        Row(
            "opensearch-mapping-conflict",
            mapping_conflict,
            "core",
            expected="mapper_parsing_exception",
            load=of_orders,
            refused=is_conflicting,
        ),
        Row(
            "opensearch-mapping-conflict-set-aside",
            conflicting_is_set_aside,
            "core",
            load=without_the_conflicting,
            refused=is_conflicting,
        ),
        *(replace(row, name=f"opensearch-{row.name}") for row in AGAIN),
    )
)
