"""What quickens a broker's start: what it belongs to, and that nothing damaged or unfinished is ever used."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack import training
from stack.quick_start import ARCHIVE, META, STORAGE, QuickStart, new_id

CONTENT = b"classes" * 1000
OPTIONS = ("-XX:+UseSerialGC",)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java, jars and a cache. Returns the folder of all three."""
    for file in ("java/bin/java", "java/lib/server/libjvm.so", "jars/kafka.jar"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("")
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("KAFKA_REPLICATION_CACHE", str(tmp_path / "cache"))
    return tmp_path


def of(home: Path, *options: str) -> QuickStart:
    found = QuickStart.of(str(home / "java/bin/java"), home / "jars", options or OPTIONS)
    assert found is not None
    return found


@pytest.fixture
def made(home: Path) -> QuickStart:
    """One that was made."""
    with of(home).making() as folder:
        assert folder is not None
        (folder / ARCHIVE).write_bytes(CONTENT)
        (folder / STORAGE).mkdir()
        (folder / STORAGE / META).write_text("#\nnode.id=7\ndirectory.id=d\nversion=1\ncluster.id=c\n")
        (folder / STORAGE / "bootstrap.checkpoint").write_bytes(b"features")
    return of(home)


def test_what_was_made_is_used(made: QuickStart, tmp_path: Path) -> None:
    assert made.java_options()[0] == f"-XX:SharedArchiveFile={made.folder / ARCHIVE}"
    data = [tmp_path / "data1", tmp_path / "data2"]
    assert all(made.format(folder, "mine", 3) for folder in data)
    assert (data[0] / "bootstrap.checkpoint").read_bytes() == b"features"
    first, second = ((folder / META).read_text().splitlines() for folder in data)
    assert [first[0], first[1], first[3], first[4]] == ["#", "node.id=3", "version=1", "cluster.id=mine"]
    assert first[2].startswith("directory.id=") and first[2] not in ("directory.id=d", second[2])


def test_its_place_differs_with_whatever_java_would_refuse(home: Path) -> None:
    places = [of(home).folder, of(home, "-XX:+UseG1GC").folder]
    assert of(home).folder == places[0]
    for file in ("java/release", "java/lib/server/libjvm.so", "jars/kafka.jar"):
        (home / file).write_text("another")
        places.append(of(home).folder)
    (home / "jars" / "more.jar").write_text("")
    places.append(of(home).folder)
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("damaged", [CONTENT[:-1], b"", b"x" + CONTENT[1:], CONTENT + b"x"])
def test_a_damaged_archive_is_not_used(made: QuickStart, damaged: bytes) -> None:
    (made.folder / ARCHIVE).write_bytes(damaged)
    assert made.java_options() == ()


def test_where_none_was_made_java_gets_none_and_kafka_s_own_tool_formats(home: Path, tmp_path: Path) -> None:
    assert of(home).java_options() == () and not of(home).format(tmp_path / "data", "mine", 1)
    assert not (tmp_path / "data").exists()


def fail(folder: Path | None) -> None:
    """The broker that makes it dies, and leaves half an archive."""
    assert folder is not None
    (folder / ARCHIVE).write_bytes(CONTENT[:100])
    raise ZeroDivisionError


def test_what_failed_is_neither_used_nor_tried_again(home: Path) -> None:
    with pytest.raises(ZeroDivisionError), of(home).making() as folder:
        fail(folder)
    assert of(home).java_options() == ()
    with of(home).making() as again:
        assert again is None


def test_what_a_killed_maker_left_goes(home: Path) -> None:
    left = of(home).folder.with_suffix(".unfinished")
    left.mkdir(parents=True)
    (left / ARCHIVE).write_bytes(CONTENT[:100])
    with of(home).making() as folder:
        assert folder is not None and list(folder.iterdir()) == []
    assert of(home).java_options() == ()


def test_a_java_that_says_nothing_of_itself_or_a_colon_in_the_folder_has_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_REPLICATION_CACHE", str(home / "with:colon"))
    assert QuickStart.of(str(home / "java/bin/java"), home / "jars", OPTIONS) is None
    monkeypatch.undo()
    (home / "java" / "release").unlink()
    assert QuickStart.of(str(home / "java/bin/java"), home / "jars", OPTIONS) is None


def test_making_it_never_fails(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    training.make(home)


def test_no_id_begins_like_an_option() -> None:
    ids = [new_id() for _ in range(500)]
    assert (
        not any(each.startswith("-") for each in ids) and len(set(ids)) == 500 and {len(each) for each in ids} == {22}
    )
