"""A certificate says what is known of a copy, its files show every change, and the data can be compared with it again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kafka_replication.kafka.groups import Committed, commit
from kafka_replication.model.choices import Action
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runs import adopting, failover, sealing
from kafka_replication.runs.adopting import DATA, Adoption
from kafka_replication.runs.run import Request, open_run
from stack.kafka_cluster import KafkaCluster
from stack.ports import LOOPBACK, free_ports
from tests.support.actions import approve, put_receipt, receipts_of
from tests.support.checker import read
from tests.support.command_line import command
from tests.support.damage import batches, healed
from tests.support.failed import QUARANTINE, ask
from tests.support.jobs import InProcess
from tests.support.mirrored import Mirrored
from tests.support.scenario import Cluster, Rec, Scenario, numbered

DOCS = Path(__file__).parents[2] / "docs" / "certificates.md"
HEADERS = (("type", b"order"),)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The PEM file of a private key; that of the public one lies beside it."""
    made = Ed25519PrivateKey.generate()
    file = tmp_path / "signing.pem"
    file.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "public.pem").write_bytes(public)
    return file


def orders(count: int, first: int = 0) -> list[Rec]:
    """Every third one is of another type."""
    return [
        Rec(each.key, each.value, HEADERS if number % 3 else (("type", b"test"),), each.timestamp)
        for number, each in enumerate(numbered(count, first), first)
    ]


def eventful(scene: Scenario) -> None:
    """Partition 0: 30 orders of another tool, adopted; then a filter, a quarantined record at 40, a gap [60, 70), and the rest
    until 90. Partition 1 is plain.
    """
    scene.settings |= {"filter": "headers.type == 'order'", "failures": QUARANTINE, "copy": {"chunk_records": 7}}
    scene.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic, 2)
    scene.target.create(scene.topic, 2, {"max.message.bytes": "100000"})
    scene.source.produce(scene.topic, [Rec(r.key, r.value, HEADERS, r.timestamp) for r in numbered(30)])
    copy = Mirrored(scene)
    copy.copy(0, [(0, 30)])
    adopted = open_run(scene.replication(filter=None), scene.connections, scene.store, "adopt")
    assert [row.state for row in adopting.adopt(adopted, Adoption(from_=DATA)).partitions][:1] == ["adopted"]
    records = orders(30, 30)
    records[10] = Rec(b"large", os.urandom(150_000), HEADERS)
    scene.source.produce(scene.topic, records)
    scene.source.produce(scene.topic, orders(20), 1)
    commit(scene.source.admin, f"{scene.name}-billing", {TopicPartition(scene.topic, 0): Committed(45)})
    report = scene.run()
    assert report.outcome == "done", report.table()
    scene.source.produce(scene.topic, orders(30, 60))
    scene.source.delete_before(scene.topic, 0, 70)
    assert scene.run().outcome == "failed"
    approve(scene, 60, 70)
    assert scene.run().outcome == "done"


def certified(scene: Scenario, key: Path, *more: str, code: int = 0) -> tuple[dict[str, Any], Path]:
    """The certificate, and its JSON file."""
    done, out, err = command(scene, "certify", "--out", str(key.parent), "--key", str(key), "--json", *more)
    assert done == code, out + err
    document = json.loads(out)
    return document["certificate"], Path(document["json_file"])


def checked(scene: Scenario, file: Path, *more: str) -> tuple[int, str]:
    public = file.parent / "public.pem"
    code, out, err = command(scene, "certify", "--check", str(file), "--public-key", str(public), *more)
    assert code < 2, err
    return code, out


def test_a_run_until_a_time_is_one_cut_which_the_report_names_and_the_certificate_shows(
    scene: Scenario, key: Path
) -> None:
    """Each partition ends before its first record of that time or later, wherever that is; nothing behind it is certified."""
    scene.source.create(scene.topic, 3)
    for partition, first in enumerate((0, 40, 200)):  # a record of number n has n milliseconds
        scene.source.produce(scene.topic, numbered(100, first), partition)
    until = datetime.fromtimestamp(1_700_000_000.070, UTC)
    report = scene.run(request=Request(until=until))
    assert "NOTE one cut: each partition up to its first record of 2023-11-14T22:13:20.070Z or later" in report.table()
    cuts = [
        next(offset for offset, record in read(scene.source.bootstrap, scene.topic, number) if record.timestamp >= at)
        for number in range(3)
        for at in [int(until.timestamp() * 1000)]
    ]
    assert cuts == [70, 30, 0]
    made, file = certified(scene, key)
    assert [(row["from"], row["until"]) for row in made["partitions"]] == [(0, cut) for cut in cuts]
    assert [row["verified"] for row in made["partitions"]] == [[[0, cut]] if cut else [] for cut in cuts]
    assert made["verified"] and "the source had 200 offsets that were never copied" in made["verdict"], made["verdict"]
    assert checked(scene, file, "--data")[0] == 0
    assert "one cut" not in scene.run().table(), "without a time there is none"


def test_a_run_with_a_gap_a_quarantined_record_a_filter_and_an_adopted_part(scene: Scenario, key: Path) -> None:
    eventful(scene)
    made, file = certified(scene, key, code=1)
    assert not made["verified"] and "1 records that could not be copied wait for a decision" in made["verdict"]
    ask(scene, Action.DISCARD, everything=True)
    made, file = certified(scene, key)
    assert made["verified"], made["verdict"]
    first, second = made["partitions"]
    assert (first["from"], first["until"], first["copied"]) == (30, 90, [[30, 60], [70, 90]])
    assert first["verified"] == first["copied"] and first["verified_by"] == "digest" and not first["pending"]
    assert (first["adopted"]["source"], first["adopted"]["compared"]) == ("data", 30)
    [gap] = first["gaps"]
    assert (gap["from"], gap["until"], gap["kind"], gap["approved_by"]) == (60, 70, "retention", "ann")
    assert (gap["reason"], bool(gap["time"])) == ("retention was too short", True)
    [failed] = first["failed"]
    assert (failed["offset"], failed["kind"], failed["state"]) == (40, "too_large", "discarded")
    assert failed["history"][-1]["by"] == "ann"
    there = [record for _, record in read(scene.target.bootstrap, scene.topic, 0)][30:]
    receipts = first["receipts"]
    assert (receipts["records"], receipts["quarantined"]) == (len(there), 1)
    assert receipts["filtered"] == sum(number % 3 == 0 for number in (*range(30, 60), *range(70, 90)))
    assert receipts["bytes"] == sum(len(r.key or b"") + len(r.value or b"") + 9 for r in there), "with the header"
    assert second["receipts"]["filtered"] == 7 and second["from"] == 0 and not second["gaps"]
    ids = scene.position().ids
    assert first["ids"] == {name: getattr(ids, name) for name in ("source_cluster", "source_topic", "target_topic")}
    assert made["source_cluster"] == ids.source_cluster != made["target_cluster"]
    assert made["settings"]["filter"] == "headers.type == 'order'" and made["filter_and_transform"].startswith(
        "filter ("
    )
    [group] = made["groups"]
    assert (group["group"], group["exact"]) == (f"{scene.name}-billing", 1)
    for text in ("another tool", "given up by ann", "left out by the filter", "1 discarded"):
        assert any(text in remark for remark in made["remarks"]), made["remarks"]
    page = file.with_suffix(".html").read_text()
    for text in ("Offsets that were given up", "retention was too short", "Copies of another tool", "discarded"):
        assert text in page
    assert "<script" not in page and "http" not in page

    code, out = checked(scene, file, "--data")
    assert code == 0 and "signed by the expected key" in out, out
    assert "the copy of another tool below 30 was not compared: the source has dropped what was copied" in out
    scene.source.produce(scene.topic, orders(10, 90))
    assert scene.run().outcome == "done"
    code, out = checked(scene, file, "--data")
    assert code == 0, f"what was copied since changes nothing\n{out}"
    scene.target.produce(scene.topic, [Rec(b"foreign", b"foreign")], 1)
    code, out = checked(scene, file, "--data")
    assert code == 1 and f"WRONG {scene.topic}-1: the audit of [0, 20) says: 1 records extra" in out, out
    scene.target.delete_before(scene.topic, 0, 40)
    code, out = checked(scene, file, "--data")
    assert code == 1 and re.search(rf"WRONG {scene.topic}-0: the audit of .* records missing", out), out
    code, out = checked(scene, file)
    assert code == 0, "the files are as they were"
    made, _ = certified(scene, key, code=1)
    assert any("are no longer on the target, and nothing explains it" in reason for reason in made["reasons"])
    assert any(
        f"{scene.topic}-1: " in reason and "that the ledger does not know" in reason for reason in made["reasons"]
    ), made["reasons"]


def test_receipts_that_were_changed_are_others_than_the_certificate_says(scene: Scenario, key: Path) -> None:
    """Whoever changes records and their receipts alike would be believed by an audit, if the source is gone."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    scene.run()
    _, file = certified(scene, key)
    record_key, receipt = receipts_of(scene)[0]
    put_receipt(scene, record_key, {**receipt, "digest": "0" * 32})
    code, out = checked(scene, file, "--data")
    assert code == 1 and "are others now" in out, out


def test_a_byte_of_a_record_that_was_changed_on_the_disk_is_noticed(
    own_scene: Scenario, own_cluster: KafkaCluster, key: Path
) -> None:
    """With a checksum that is right, so that no consumer notices it. In our copy, and in that of another tool."""
    scene = own_scene
    scene.source.create(scene.topic)
    scene.target.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    Mirrored(scene).copy(0, [(0, 10)])
    adopting.adopt(scene.bare_run("adopt"), Adoption(from_=DATA))
    scene.source.produce(scene.topic, numbered(20, 10))
    assert scene.run().outcome == "done"
    _, file = certified(scene, key)
    code, out = checked(scene, file, "--data")
    assert code == 0, out
    [others, ours, *_] = batches(own_cluster.brokers[0].data, scene.topic)
    for batch, wrong in ((others, "the copy of another tool below 10: "), (ours, "the audit of [10, 30) says: ")):
        with healed(batch):
            batch.break_body()
            assert len(read(scene.target.bootstrap, scene.topic, 0)) == 30
            code, out = checked(scene, file, "--data")
        assert code == 1 and f"WRONG {scene.topic}-0: {wrong}" in out, out


def test_until_a_time_it_has_one_end_in_each_partition(scene: Scenario, key: Path) -> None:
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(30))
    scene.source.produce(scene.topic, numbered(30, 10), 1)
    moment = datetime.fromtimestamp(1_700_000_000.020, UTC)  # the time of record 20: offset 20, and 10 in partition 1
    scene.settings |= {"copy": {"chunk_records": 5}}
    assert scene.run(request=Request(until=moment)).outcome == "done"
    made, file = certified(scene, key, "--until", "2023-11-14T22:13:20.020Z")
    assert made["selection"]["until_time"] == "2023-11-14T22:13:20.020Z" and made["verified"], made["verdict"]
    assert [(row["wanted_until"], row["receipts"]["records"]) for row in made["partitions"]] == [(20, 20), (10, 10)]
    assert "until 2023-11-14T22:13:20.020Z: in each partition" in file.with_suffix(".html").read_text()
    code, out = checked(scene, file, "--data")
    assert code == 0 and "NOTE records and receipts were compared again just now" in out, out
    made, _ = certified(scene, key, "--until", "2023-11-14T22:13:20.025Z", code=1)
    assert "it was copied until 20, and 25 was asked for" in made["verdict"], made["verdict"]


def test_the_key_of_a_connection_and_the_files_that_the_store_keeps(scene: Scenario, key: Path) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    scene.run()
    about = json.dumps({"conn_type": "generic", "password": key.read_text().replace("\n", " ")})  # as a form leaves it
    code, out, err = command(
        scene,
        "drill",
        "--certificate",
        str(key.parent),
        AIRFLOW_CONN_SIGNING=about,
        KAFKA_REPLICATION_SIGNING_KEY="connection:signing",
    )
    [file] = key.parent.glob("*.json")
    assert code == 0 and str(file) in out, out + err
    code, out = checked(scene, file)
    assert code == 0 and "signed by the expected key" in out, out
    made = json.loads(file.read_text())["certificate"]
    assert (
        made["about"].startswith("failover drill: if the source died now: 0 records") and made["drill"]["records"] == 0
    )
    [row] = scene.store.certificates(scene.name)
    assert (row.name, row.verified, row.verdict) == (file.stem, True, made["verdict"]) and row.signed_by
    for path in (file, file.with_suffix(".html")):
        assert scene.store.certificate_file(scene.name, file.stem, path.suffix[1:]) == path.read_bytes()
    for wrong in (
        {},
        {"AIRFLOW_CONN_SIGNING": '{"conn_type": "generic"}'},
        {"AIRFLOW_CONN_SIGNING": about[:-9] + '"}'},
    ):
        code, _, err = command(scene, "certify", "--out", str(key.parent), "--key", "connection:signing", **wrong)
        assert code and "connection" in err and "remedy" in err.lower(), err
        assert key.read_text().split("\n")[1] not in err
    assert len(scene.store.certificates(scene.name)) == 1


def test_ten_lines_of_python_verify_it_without_the_product(scene: Scenario, key: Path, tmp_path: Path) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    scene.run()
    _, file = certified(scene, key)
    [lines] = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(lines.splitlines()) == 10
    program = tmp_path / "verify.py"
    program.write_text(lines)
    page = file.with_suffix(".html")
    arguments = [sys.executable, "-I", str(program), str(tmp_path / "public.pem")]
    done = subprocess.run([*arguments, str(file), str(page)], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.split()[-1] in page.read_text() and str(page) in second, "the page has the digest of the JSON file"
    for changed in (file, page):
        data = changed.read_bytes()
        for wrong in (
            data.replace(b"orders", b"Orders") + b" ",
            data[:90] + b" " + data[90:],
            data.replace(b'"}\n', b'"}'),
        ):
            changed.write_bytes(wrong)
            if wrong != data:
                assert subprocess.run([*arguments, str(changed)], capture_output=True, check=False).returncode
        changed.write_bytes(data)


def test_a_part_and_what_is_not_verified_and_a_sealed_direction(scene: Scenario, key: Path) -> None:
    scene.settings |= {"copy": {"chunk_records": 10}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(40))
    assert scene.run().outcome == "done"
    made, file = certified(scene, key, "--topic", scene.topic, "--partition", "0", "--from", "5", "--until", "15")
    [row] = made["partitions"]
    assert (row["from"], row["until"], row["copied"], row["receipts"]["records"]) == (0, 20, [[0, 20]], 20)
    assert made["selection"] == {
        "topic": scene.topic,
        "partition": 0,
        "from_offset": 5,
        "until_offset": 15,
        "until_time": None,
    }
    made, _ = certified(scene, key, "--from", "5", "--until", "90", code=1)
    assert "it was copied until 40, and 90 was asked for" in made["verdict"]

    class Died(Exception):
        pass

    def die() -> None:
        raise Died

    scene.source.produce(scene.topic, numbered(10, 40))
    with pytest.raises(Died):
        scene.run(InProcess(between=die))
    made, _ = certified(scene, key, code=1)
    assert "[40, 50) were copied and not verified" in made["verdict"]
    asked = sealing.Asked(by="ann", reason="moved")
    failover.failover(open_run(scene.replication(), scene.connections, scene.store, "over"), asked, InProcess())
    made, whole = certified(scene, key)
    assert made["partitions"][0]["seal"]["by"] == "ann" and made["verified"], made["verdict"]
    scene.target.produce(scene.topic, numbered(3, 900))
    for one in (file, whole):
        code, out = checked(scene, one, "--data")
        assert code == 0, f"others may write there now\n{out}"
    scene.source.delete(scene.topic)
    code, out = checked(scene, whole, "--data")
    assert code == 0, f"compared with the receipts alone\n{out}"


def test_a_source_that_does_not_answer(scene: Scenario, key: Path) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    scene.run()
    _, before = certified(scene, key)
    scene.settings["timeouts"] = {"request": 3}
    scene.source = Cluster(f"{LOOPBACK}:{free_ports(1)[0]}")
    made, _ = certified(scene, key)
    assert made["verified"] and any("the source was not asked" in remark for remark in made["remarks"]), made["remarks"]
    assert checked(scene, before)[0] == 0, "it asks no cluster"


def test_without_a_key_and_with_another_one(scene: Scenario, key: Path, tmp_path: Path) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    code, _, err = command(scene, "certify", "--out", str(tmp_path))
    assert code == 1 and "nothing was copied" in err
    scene.run()
    code, out, _ = command(scene, "certify", "--out", str(tmp_path))
    assert code == 0 and "NOT SIGNED" in out
    [file] = tmp_path.glob("*.json")
    code, out = checked(scene, file)
    assert code == 1 and "it is not signed" in out
    file.unlink()
    code, out, err = command(scene, "certify", "--out", str(tmp_path), "--json", KAFKA_REPLICATION_SIGNING_KEY=str(key))
    file = Path(json.loads(out)["json_file"])
    assert code == 0 and json.loads(out)["signed_by"]
    code, out = checked(scene, file)
    assert code == 0 and "signed by the expected key" in out
    code, out, _ = command(scene, "certify", "--check", str(file.with_suffix(".html")))
    assert code == 0 and "not compared with a known key" in out
    other = Ed25519PrivateKey.generate().public_key()
    (tmp_path / "public.pem").write_bytes(other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    code, out = checked(scene, file)
    assert code == 1 and "ANOTHER KEY" in out
    for wrong in (
        ["--data"],
        ["--check", str(file), "--from", "3"],
        ["--key", str(file)],
        ["--out", str(file)],
        ["--check", "no.json"],
    ):
        code, _, err = command(scene, "certify", *wrong)
        assert code == 2, err
