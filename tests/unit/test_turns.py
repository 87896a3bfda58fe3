"""Whose turn it is: every hand-over moves on, and what no engine can copy is refused."""

from __future__ import annotations

from typing import Any, cast

from kafka_replication.copying.engine import LEAST, CopyEngine, EngineTurns, HandOver, OnlyAsStored

BATCH, RECORD, EXACT = (cast(CopyEngine, name) for name in ("batch", "record", "exact"))


def turns(**more: Any) -> EngineTurns:
    return EngineTurns(**{"engine": BATCH, "fallback": RECORD, "exact": lambda: EXACT, **more})


def test_without_a_hand_over_one_engine_copies_all() -> None:
    found = turns()
    assert (found.now, found.until, found.hands_over) == (BATCH, None, True)


def test_what_the_fallback_would_change_goes_to_the_exact_engine_and_back() -> None:
    found = turns()
    found.hand_over(HandOver(5_000, "small batches"))
    assert (found.now, found.until, found.hands_over) == (RECORD, 5_000, True)
    found.hand_over(OnlyAsStored(101, "its timestamp is 0"))
    assert (found.now, found.until, found.hands_over) == (EXACT, 100 + LEAST, False)
    found.ended(100 + LEAST)
    assert (found.now, found.until) == (RECORD, 5_000)
    found.hand_over(OnlyAsStored(2_001, "its timestamp is 0"))
    assert found.until == 2_000 + 10 * LEAST  # it gets more each time
    found.ended(5_000)
    found.ended(5_000)
    assert found.now == BATCH
    assert found.until is None


def test_what_no_engine_can_copy_is_refused_and_the_next_record_is_handed_over_again() -> None:
    found = turns()
    found.hand_over(HandOver(5_000, "compacted"))
    found.hand_over(OnlyAsStored(101, "its timestamp is 0"))
    found.hand_over(HandOver(5_000, "compacted"))
    assert (found.now, found.until, found.hands_over) == (EXACT, 101, False)  # that record alone may be possible
    found.hand_over(HandOver(5_000, "compacted"))
    assert (found.now, found.until, found.hands_over) == (RECORD, 101, False)
    found.ended(101)  # set aside
    assert (found.now, found.until, found.hands_over) == (RECORD, 5_000, True)


def test_a_target_that_takes_no_batches() -> None:
    found = turns(engine=RECORD, exact=lambda: None)
    found.hand_over(OnlyAsStored(101, "its timestamp is 0"))
    assert (found.now, found.until, found.hands_over) == (RECORD, None, False)


def test_an_engine_that_gets_no_further() -> None:
    found = turns()
    assert found.give_up(9_000) and (found.now, found.until) == (RECORD, 9_000)
    assert not found.give_up(9_000)
    found.hand_over(OnlyAsStored(101, "its timestamp is 0"))
    assert found.give_up(9_000) and (found.now, found.until, found.hands_over) == (RECORD, 101, False)
