"""Replication files: every mistake is shown with its file, line, key and what is allowed, and nothing but ConfigError gets out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_replication.config.reading import load_all, load_replication, parse_replication
from kafka_replication.config.yaml import MAX_BYTES
from kafka_replication.model.errors import BadInput, ConfigError
from tests.support.config_texts import HEAD, MINIMAL

ROOT = Path(__file__).parents[2]


def complaint(text: str | bytes) -> str:
    """Everything said about a file called F."""
    with pytest.raises(ConfigError) as caught:
        parse_replication(text.encode() if isinstance(text, str) else text, "F")
    return str(caught.value)


# One line, the fifth, added to a file that is right without it -> the words that must be said.
FIFTH_LINE = [
    ("sink: {}", "F:5: key 'sink': unknown key; allowed: name, source, target, topics, schedule, "),
    ("topcs: {}", "did you mean 'topics'?"),
    ("copy: {chunk_record: 1}", "F:5: key 'copy.chunk_record': unknown key, did you mean 'chunk_records'?. Remedy: "),
    ("copy: {zzz: 1}", "F:5: key 'copy.zzz': unknown key; allowed: engine, chunk_records, "),
    (
        "copy: {chunk_records: many}",
        "key 'copy.chunk_records': must be a whole number from 1 to 10000000; found 'many'",
    ),
    ("copy: {chunk_records: '5'}", "must be a whole number from 1 to 10000000; found '5'"),
    ("copy: {chunk_records: 0}", "must be a whole number from 1 to 10000000; found 0"),
    ("copy: {chunk_records: 1.5}", "found '1.5'"),
    ("copy: {chunk_records: 010}", "found '010'"),
    ("copy: {chunk_records: 1:30}", "found '1:30'"),
    ("copy: {chunk_records: true}", "found true"),
    (f"copy: {{chunk_records: {'9' * 5000}}}", "... (5002 characters)"),
    ("copy: {transaction_timeout: 901}", "must be a whole number from 2 to 900; found 901"),
    ("copy: {chunk_seconds: 30}", "F:5: key 'copy.chunk_seconds': unknown key, did you mean 'chunk_records'?"),
    ("copy: {engine: spark}", "key 'copy.engine': must be auto or record or batch; found 'spark'"),
    ("copy: 5", "key 'copy': must be a mapping with the keys engine, chunk_records, "),
    ("copy:", "found nothing (null)"),
    ("verify: {level: Digset}", "must be digest or count; found 'Digset', did you mean 'digest'?"),
    ("target_topics: {create: yes}", "key 'target_topics.create': must be true or false; found 'yes'"),
    ("target_topics: {create: 1}", "must be true or false; found 1"),
    ("on_existing_target: adopt", "must be refuse or append or share; found 'adopt'"),
    ("target_topics: {replication_factor: 0}", "must be a whole number from 1 to 32767, or null; found 0"),
    (
        "target_topics: {config: {retention.ms: [1]}}",
        "key 'target_topics.config.retention.ms': must be text; found a list",
    ),
    ("target_topics: {config: {a: null}}", "must be text; found nothing (null)"),
    ("target_topics: {config: {'': a}}", "key 'target_topics.config.': must not be empty"),
    ("target_topics: {config: [a]}", "must be a mapping of text to text; found a list"),
    ("target_topics: {config: {message.timestamp.type: LogAppendTime}}", "message.timestamp.type must be CreateTime"),
    (
        "spark: {conf: {executor.memory: 2g}}",
        "keys must start with 'spark.', or spark-submit ignores them: executor.memory",
    ),
    ("spark: {connection: 'a b'}", "key 'spark.connection': must be the id of an Airflow connection"),
    ("spark: {connection: 'spark://user:secret@host'}", "found 'spark://***@host'"),
    ("spark: {connection: 'spark://host'}", "must be the id of an Airflow connection"),
    ("retries: {attempts: -1}", "must be a whole number from 0 to 100; found -1"),
    ("max_records_per_run: 0", "must be a whole number of at least 1, or null; found 0"),
    ("tags: [' ']", "key 'tags[0]': must not be empty"),
    ("description: 12", "key 'description': must be text; put it in quotes; found 12"),
    ('description: "\\ud800"', "half a surrogate pair"),
    ('description: "\\0"', "key 'description': holds a control character"),
    ("tags: dr", "key 'tags': must be a list of text of at most 100 characters; found 'dr'"),
    ("tags: [1]", "key 'tags[0]': must be text; put it in quotes; found 1"),
    (f"tags: [{'x' * 101}]", "key 'tags[0]': must be at most 100 characters long; found 'xxx"),
    ("start_from: 2030-01-31T06:00:00", "must say its time zone: end it with Z for UTC"),
    (
        "start_from: 2030-01-31",
        "must be earliest, latest, or a time in RFC 3339 with its zone, such as 2030-01-31T06:00:00Z; found '2030-01-31'",
    ),
    ("start_from: 2030-02-30T06:00:00Z", "must be a time that exists: day is out of range for month"),
    ("start_from: 1969-12-31T23:59:59Z", "must not lie before 1970-01-01T00:00:00Z"),
    ("start_from: 9999-12-31T23:59:59-01:00", "must lie between the years 1970 and 9999"),
    ("start_from: 0", "must be earliest, latest, or a time in RFC 3339"),
    ("schedule: hourly", "must be a cron expression of 5 fields"),
    ("schedule: '@fortnightly'", "one of @once, @continuous, @hourly, "),
    ("schedule: '* * * *'", "must be a cron expression of 5 fields"),
    ("schedule: '60 * * * *'", "minute field '60' is not valid: allowed are * or 0 to 59"),
    ("schedule: '0 24-2 * * *'", "hour field '24-2' is not valid"),
    ("schedule: '0 0 * * fry'", "day of week field 'fry' is not valid: allowed are * or 0 to 7, or sun to sat"),
    ("schedule: '*/0 * * * *'", "minute field '*/0' is not valid"),
    ("schedule: '0 0 * * mon#6'", "day of week field 'mon#6' is not valid"),
    ("schedule: '0 0 * * 1 60'", "second field '60' is not valid"),
    ("schedule: '1#1'", "must be a cron expression of 5 fields"),
    ("schedule: '0 0 1 1 * 0 2020'", "a year in the past"),
    ("schedule: '0 0 31 2 mon#5'", "names a day that none of its months has"),
    ("schedule: '0 0 31 2,4 *'", "names a day that none of its months has"),
    ("name: other", "F:5: key 'name': given twice; first in line 1"),
    ("description: !!binary eA==", "F:5: key 'description': tags (!!binary) are not supported"),
    ("description: !secret x", "tags (!secret) are not supported"),
    ("description: *dr", "F:5: key 'description': aliases (*dr) are not supported"),
    ("tags: [&a x, *a]", "F:5: key 'tags[1]': aliases (*a) are not supported"),
    ("*a : x", "F:5: key 'a': aliases (*a) are not supported"),
    ("!!str description: x", "F:5: key 'description': tags (!!str) are not supported"),
    ("tags: ! [x]", "F:5: key 'tags': tags (!) are not supported"),
    ("[a]: b", "F:5: a key must be plain text"),
    ("? {a: b}\n: c", "F:5: a key must be plain text"),
    ("<<: {description: me}", "key '<<': unknown key"),
    ("---\nname: b", "F:5: not valid YAML: expected a single document in the stream, but found another"),
    ("description: [a", "not valid YAML: while parsing a flow sequence"),
    ("\tdescription: x", "F:5: not valid YAML: "),
    ("description: \x07", "F:5: not valid YAML: character #x0007 is not allowed"),
    ('description: "\\UFFFFFFFF"', "not valid YAML: "),
    ("description: " + "[" * 50_000, "F:5: not valid YAML: nested more than 20 levels deep"),
    ('"a\\nb": 1', "key 'a\\nb': unknown key"),
]


@pytest.mark.parametrize(("line", "words"), FIFTH_LINE, ids=lambda value: value[:40])
def test_a_wrong_line_is_named(line: str, words: str) -> None:
    said = complaint(MINIMAL + line + "\n")
    assert words in said
    assert "must name at least one" not in said or "[]" in line
    assert all(re.match("F:[567]: ", each) for each in said.splitlines())
    assert said.endswith(". Remedy: correct the file; docs/configuration.md explains every key")


# The fourth line, topics, after three that are right.
TOPICS = [
    ("topics: {}", "F:4: key 'topics.include': required, but missing; it must be a list of text"),
    ("topics: {include: []}", "F:4: key 'topics.include': must name at least one"),
    ("topics: {include: orders}", "must be a list of text; found 'orders'"),
    ("topics: {include: [12]}", "key 'topics.include[0]': must be text; put it in quotes; found 12"),
    (
        "topics: {include: [or ders]}",
        "is no topic name to Kafka: allowed are letters, digits, dots, underscores and dashes",
    ),
    (
        "topics: {include: ['audit.*']}",
        r"a regular expression must start with ^, did you mean '^audit\..*'?; found 'audit.*'",
    ),
    ("topics: {include: ['..']}", "is no topic name to Kafka"),
    (f"topics: {{include: [{'x' * 250}]}}", "is 250 characters long; Kafka allows a topic name 249"),
    (
        "topics: {include: ['^a(']}",
        "is not a regular expression that Python's re can read: missing ), unterminated subpattern",
    ),
    ("topics: {include: ['^[[a]']}", "Possible nested set"),
    ("topics: {include: ['^a{99999999999999999999}']}", "is not a regular expression that Python's re can read"),
    (f"topics: {{include: ['^{'(' * 2000}']}}", "regular expression of 2001 characters; allowed are 1000"),
    (f"topics: {{include: ['^{'(' * 490}{')' * 490}']}}", "is not a regular expression"),
    ("topics: {include: [a], exclude: ['^(']}", "key 'topics.exclude[0]': is not a regular expression"),
    ("topics: {include: [a], exclude: [a]}", "include names 'a', but exclude leaves it out: remove one of the two"),
    ("topics: {include: [a], rename: copy}", "must contain {topic}, or every topic would land in one; found 'copy'"),
    ("topics: {include: [a], rename: 'dr/{topic}'}", "would give target topics a name that is no topic name to Kafka"),
    ("topics: {include: [a], rename: '{topic}.{partition}'}", "outside {topic} only letters, digits, . _ - may stand"),
    ("topics: {include: [a], rename: 'kafka-replication.{topic}'}", "which belongs to the ledger"),
    ("topics: {include: [__consumer_offsets]}", "which is an internal topic of Kafka: change rename"),
    (f"topics: {{include: [{'x' * 249}], rename: 'dr.{{topic}}'}}", "is 252 characters long"),
]


@pytest.mark.parametrize(("line", "words"), TOPICS, ids=lambda value: value[:40])
def test_wrong_topics_are_named(line: str, words: str) -> None:
    said = complaint(HEAD + line + "\n")
    assert "F:4: key 'topics" in said
    assert words in said


NAMES = [
    ("Orders", "F:1: key 'name': must be lower-case letters, digits, dots, underscores and dashes"),
    ("a b", "must be lower-case letters"),
    ("'a\\n'", "must be lower-case letters"),
    ("..", "with at least one letter or digit; found '..'"),
    ("''", "must be lower-case letters"),
    ("x" * 201, "must be at most 200 characters long, not 201"),
    ("a.backfill", "must not end in '.backfill'"),
    ("a.audit", "must not end in '.audit'"),
    ("12", "must be text; put it in quotes; found 12"),
    ("true", "must be text; put it in quotes; found true"),
    ("null", "must be text; found nothing (null)"),
]


@pytest.mark.parametrize(("name", "words"), NAMES)
def test_wrong_names_are_named(name: str, words: str) -> None:
    assert words in complaint(MINIMAL.replace("orders-dr", name))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "F:1: the file is empty; a replication needs at least name, source, target and topics"),
        (b"# nothing\n", "the file is empty"),
        (b"---\n", "the file is empty"),
        (b"\n- a\n", "F:2: must be a mapping (key: value); found a list"),
        (b"orders", "must be a mapping (key: value); found 'orders'"),
        (b"- !x a", "F:1: key '[0]': tags (!x)"),
        (b"name: a\ndescription: \xff\n", "F:2: byte 21 is not UTF-8"),
        (MINIMAL.encode("utf-16"), "is not UTF-8; save the file as UTF-8"),
        (b"#" * (MAX_BYTES + 1), f"the file is larger than {MAX_BYTES} bytes"),
        (b"%YAML 1." + b"9" * 5000 + b"\n---\na: 1\n", "not valid YAML"),
    ],
)
def test_files_that_hold_no_replication(data: bytes, words: str) -> None:
    assert words in complaint(data)


def test_every_mistake_is_shown_at_once_in_the_order_of_lines() -> None:
    said = complaint(
        "nam: a\n\nsource: {connection: s, password: hunter2}\ntopics:\n  include:\n    - ok\n"
        "    - not ok\ncopy:\n  chunk_records: 0\nname: A\nname: B\n"
    )
    places = [line.split(": ")[:2] for line in said.splitlines()]
    assert places == [
        ["F:1", "key 'target'"],
        ["F:1", "key 'nam'"],
        ["F:3", "key 'source.password'"],
        ["F:7", "key 'topics.include[1]'"],
        ["F:9", "key 'copy.chunk_records'"],
        ["F:10", "key 'name'"],
        ["F:11", "key 'name'"],
    ]
    assert "hunter2" not in said


def test_one_connection_for_both_ends_needs_other_names() -> None:
    same = MINIMAL.replace("kafka_target", "kafka_source")
    assert "F:4: key 'topics': source and target are the same connection 'kafka_source'" in complaint(same)
    assert (
        parse_replication(same.replace("[orders]", "[orders], rename: 'b.{topic}'").encode(), "F").target_topic(
            "orders"
        )
        == "b.orders"
    )


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("description: on", "description", "on"),
        ("description: 1.10", "description", "1.10"),
        ("description: '12'", "description", "12"),
        ("schedule: null", "schedule", None),
        ("schedule: ~", "schedule", None),
        ("description: |\n  # Orders\n  text\n", "description", "# Orders\ntext\n"),
        ("tags: [a, b, a]", "tags", ("a", "b")),
        (
            "spark: {conf: {spark.memory.fraction: 0.60, spark.x: TRUE, spark.y: 010}}",
            "spark.conf",
            {"spark.memory.fraction": "0.60", "spark.x": "true", "spark.y": "010"},
        ),
    ],
)
def test_values_keep_the_text_that_was_written(line: str, key: str, value: object) -> None:
    found: object = parse_replication((MINIMAL + line).encode(), "F")
    for step in key.split("."):
        found = getattr(found, step)
    assert found == value


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_an_unquoted_time_is_a_time(quote: str) -> None:
    text = f"{MINIMAL}start_from: {quote}2030-01-31T08:00:00+02:00{quote}\n"
    assert parse_replication(text.encode(), "F").model_dump(mode="json")["start_from"] == "2030-01-31T06:00:00Z"


def test_a_byte_order_mark_and_windows_lines_are_fine() -> None:
    assert parse_replication(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode(), "F").name == "orders-dr"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent.yaml", "absent.yaml: cannot be read: No such file"),
        ("", "is a folder, not a file"),
        ("a\0b", "cannot be read: "),
    ],
)
def test_paths_that_are_no_file(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load_replication(tmp_path / name)
    with pytest.raises(BadInput, match="is not a regular file"):
        load_replication(Path("/dev/zero"))


def test_load_all_keeps_what_is_right_and_names_what_is_not(tmp_path: Path) -> None:
    for file, name in [
        ("c.yaml", "first"),
        ("a.yml", "second"),
        ("d.yaml", "first"),
        ("b.yaml", "Bad"),
        (".hidden.yaml", "Bad"),
        ("notes.txt", "Bad"),
    ]:
        (tmp_path / file).write_text(MINIMAL.replace("orders-dr", name))
    (tmp_path / "folder.yaml").mkdir()
    loaded, broken = load_all(tmp_path)
    errors = [each.error for each in broken]
    assert {name: each.name for name, each in loaded.items()} == {"second": "second", "first": "first"}
    assert list(loaded) == ["second", "first"]
    assert [error.what for error in errors[1:]] == [
        f"{tmp_path}/d.yaml:1: key 'name': 'first' is already the name of {tmp_path}/c.yaml",
        f"{tmp_path}/folder.yaml: is a folder, not a file",
    ]
    assert errors[0].what.startswith(f"{tmp_path}/b.yaml:1: key 'name': must be lower-case")
    assert len(errors) == 3


def test_load_all_of_a_folder_that_is_not_there(tmp_path: Path) -> None:
    loaded, broken = load_all(tmp_path / "absent")
    assert loaded == {}
    assert "absent: cannot be listed: No such file" in str(broken[0].error)


def test_the_files_that_come_with_the_product_load() -> None:
    loaded, broken = load_all(ROOT / "dags/replications")
    assert broken == []
    demo = loaded["demo-orders"]
    assert demo.schedule is None
    assert demo.selects("demo.orders") and not demo.selects("orders")
