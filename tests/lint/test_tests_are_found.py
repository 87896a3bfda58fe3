"""The tests of each module can be found: by its name, by what they import, or by the modules that use it."""

from __future__ import annotations

from tests.support import tests_of

# Modules that something starts or loads by their name, and the tests that have it do so.
BY_NAME = {
    "cli.__main__": "integration/test_first_file.py",
    "orchestration.page_app": "e2e/test_page.py",
    "orchestration.plugin": "e2e/test_page.py",
}


def test_each_module_has_tests() -> None:
    names = (name for name, file in tests_of.modules().items() if file.stem != "__init__")
    untested = {name.removeprefix("kafka_replication.") for name in names if not tests_of.tests_of(name)[0]}
    assert untested == set(BY_NAME), "write a test, or name the one that loads it by its name; remove what has tests"
    assert [test for test in BY_NAME.values() if not (tests_of.ROOT / "tests" / test).is_file()] == []


def test_a_module_without_tests_of_its_own_has_those_of_the_module_that_uses_it() -> None:
    tests, through = tests_of.tests_of("kafka_replication.runs.look")
    assert "kafka_replication.runs.watching" in through
    assert tests_of.ROOT / "tests" / "integration" / "test_alerts.py" in tests
    tests, through = tests_of.tests_of("kafka_replication.ledger.placement")
    assert tests_of.ROOT / "tests" / "unit" / "test_placement.py" in tests and not through
