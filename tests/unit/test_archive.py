"""The class-data archive: what it belongs to, and that no damaged, foreign or planted one is ever given to Java."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_replication.spark import local, training
from kafka_replication.spark import local as module
from kafka_replication.spark.local import Archive, Java
from kafka_replication.spark.submit import spark_home

CONTENT = b"classes" * 1000


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java of version 17. Returns its home."""
    home = tmp_path / "java"
    for file in ("bin/java", "lib/server/libjvm.so"):
        (home / file).parent.mkdir(parents=True)
        (home / file).write_text("")
    (home / "release").write_text('IMPLEMENTOR="Somebody"\nJAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "spark"


def of(spark: Path, *options: str) -> Archive:
    found = Archive.of(spark, options)
    assert found is not None
    return found


@pytest.fixture
def made(java: Path, spark: Path) -> Archive:
    """One that was made."""
    archive = of(spark)
    with archive.making() as file:
        assert file is not None
        file.write_bytes(CONTENT)
    return archive


def fail(file: Path | None) -> None:
    """Java ends in the middle."""
    assert file is not None
    file.write_bytes(CONTENT[:100])
    raise ZeroDivisionError


def only_file(archive: Archive) -> Path:
    (file,) = archive.folder.glob("*.jsa")
    return file


def test_what_was_made_is_found(made: Archive, spark: Path) -> None:
    sound = of(spark).sound()
    assert sound == only_file(made) and sound.read_bytes() == CONTENT
    assert made.folder.stat().st_mode & 0o777 == 0o700 and sound.stat().st_mode & 0o777 == 0o600
    assert sorted(path.suffix for path in made.folder.iterdir()) == ["", ".jsa"], "nothing else but the lock"


def test_its_key_differs_with_whatever_java_would_refuse(
    java: Path, spark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [of(spark).key, of(spark, "-XX:+UseSerialGC").key]
    assert of(spark).key == keys[0]
    (java / "release").write_text('JAVA_VERSION="21.0.1"\n')
    keys.append(of(spark).key)
    (java / "lib" / "server" / "libjvm.so").write_text("another build")
    keys.append(of(spark).key)
    os.utime(spark / "jars", ns=(0, 0))
    keys.append(of(spark).key)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    keys.append(of(spark).key)
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("damage", ["cut", "emptied", "flipped", "longer"])
def test_a_damaged_one_is_not_used_and_made_again(made: Archive, damage: str) -> None:
    file = only_file(made)
    changed = bytearray(CONTENT)
    changed[len(changed) // 2] ^= 1
    content = {"cut": CONTENT[:-100], "emptied": b"", "flipped": bytes(changed), "longer": CONTENT + b"x"}
    file.write_bytes(content[damage])
    assert made.sound() is None
    with made.making() as again:
        assert again is not None
        again.write_bytes(CONTENT)
    assert made.sound() == file
    with made.making() as again:
        assert again is None, "it is sound"


def test_a_link_a_folder_and_a_pipe_are_not_used(made: Archive, tmp_path: Path) -> None:
    file = only_file(made)
    elsewhere = file.rename(tmp_path / "elsewhere")
    file.symlink_to(elsewhere)
    assert made.sound() is None
    file.unlink()
    file.mkdir()
    assert made.sound() is None
    file.rmdir()
    os.mkfifo(file)
    assert made.sound() is None


def test_one_that_others_may_write_is_not_used(made: Archive) -> None:
    only_file(made).chmod(0o620)
    assert made.sound() is None


def test_one_that_cannot_be_read_is_not_used(made: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError("not yours")

    monkeypatch.setattr(os, "open", refuse)  # for root every file is readable
    assert made.sound() is None


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_may_write_is_not_used(made: Archive, mode: int) -> None:
    made.folder.chmod(mode)
    assert made.sound() is None
    with pytest.raises(PermissionError), made.making():
        pass


def test_a_folder_of_another_user_is_not_used(made: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = made.folder.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert made.sound() is None
    with pytest.raises(PermissionError), made.making():
        pass


def test_a_folder_that_is_a_link_is_not_used(made: Archive, tmp_path: Path) -> None:
    made.folder.symlink_to(made.folder.rename(tmp_path / "moved"))
    assert made.sound() is None
    with pytest.raises(PermissionError), made.making():
        pass


def test_a_cache_that_cannot_be_a_folder_is_an_error_of_making_only(java: Path, spark: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert of(spark).sound() is None
    with pytest.raises(OSError, match="cache"), of(spark).making():
        pass


def test_what_a_failed_or_killed_maker_left_is_no_archive_and_goes(java: Path, spark: Path) -> None:
    archive = of(spark)
    with archive.making():
        pass  # Java wrote nothing
    assert archive.sound() is None
    left = archive.folder / f"{module.UNFINISHED}left"
    left.mkdir()
    (left / "classes.jsa").write_bytes(CONTENT[:100])
    with pytest.raises(ZeroDivisionError), archive.making() as file:
        fail(file)
    assert [path.name for path in archive.folder.iterdir()] == ["lock"]


@pytest.mark.parametrize("folder", ["with space", "with:colon", "with'quote"])
def test_a_folder_that_java_s_options_cannot_name_has_none(
    java: Path, spark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / folder))
    assert Archive.of(spark, ()) is None


@pytest.mark.parametrize("release", [None, "", 'JAVA_VERSION="11.0.2"\n', 'JAVA_VERSION="1.8.0"\n', "JAVA_VERSION=x\n"])
def test_a_java_that_is_old_or_says_nothing_of_itself_has_none(java: Path, spark: Path, release: str | None) -> None:
    (java / "release").unlink()
    if release is not None:
        (java / "release").write_text(release)
    assert Archive.of(spark, ()) is None


def test_without_java_or_home_there_is_none(java: Path, spark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert Java.installed() is None and Archive.of(spark, ()) is None
    monkeypatch.setenv("JAVA_HOME", str(java))
    monkeypatch.delenv("XDG_CACHE_HOME")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert Archive.of(spark, ()) is None


def test_none_is_made_for_a_java_that_has_options_of_the_user(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java here is none that could be started."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")
    training.make()
    assert not (Path(os.environ["XDG_CACHE_HOME"]) / module.FOLDER).exists()


def test_java_gets_a_sound_one_and_is_told_to_say_nothing_of_it(java: Path) -> None:
    archive = local.archive(spark_home())
    assert archive is not None
    with archive.making() as file:
        assert file is not None
        file.write_bytes(CONTENT)
    options = local.conf(spark_home(), {})[local.OPTIONS].split()
    assert options == [*local.QUICK, f"-XX:SharedArchiveFile={only_file(archive)}", "-Xshare:auto", *local.SILENT]
    only_file(archive).write_bytes(CONTENT[:-1])
    assert local.conf(spark_home(), {})[local.OPTIONS].split() == list(local.QUICK)
