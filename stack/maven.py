"""Fetching artifacts from Maven Central: with `mvn` where it is installed, else with the Ivy that pyspark brings along.

Both go through what this machine is set up with: `mvn` by itself, Ivy by the user's ``~/.ivy2/ivysettings.xml``, else
by a mirror of Central named in Maven's settings.xml. Mirrors that ask for a password work with `mvn` only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from stack.errors import StackError
from stack.java import java

DEADLINE_SECONDS = 900
LOOK_SECONDS = 1.0

_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>stack</groupId><artifactId>stack</artifactId><version>1</version>
<dependencies>%s</dependencies></project>"""
_POM_DEPENDENCY = "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>"
_IVY = """<ivy-module version="2.0"><info organisation="stack" module="stack"/>
<configurations><conf name="default"/></configurations>
<dependencies>%s</dependencies></ivy-module>"""
_IVY_DEPENDENCY = '<dependency org="%s" name="%s" rev="%s" transitive="{}" conf="default->runtime,master"/>'
_IVY_SETTINGS = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true"%s/></resolvers></ivysettings>"""


def fetcher() -> str:
    """Which of the two this machine has: ``mvn`` or ``ivy``."""
    return "mvn" if shutil.which("mvn") else "ivy"


def fetch(
    artifacts: Sequence[str],
    folder: Path,
    work: Path,
    tool: str | None = None,
    seen: Callable[[], None] = lambda: None,
    *,
    alone: bool = False,
) -> None:
    """Put artifacts (``group:name:version``) and what they need at runtime into ``folder`` as ``name-version.jar``.
    ``alone``: not what they need. Maven and Ivy may choose other versions of it.

    ``seen`` is called every second while it works; `there` says what has arrived.
    """
    coordinates = [tuple(artifact.split(":")) for artifact in artifacts]
    work.mkdir(parents=True, exist_ok=True)
    if (tool or fetcher()) == "mvn":
        pom = work / "pom.xml"
        pom.write_text(_POM % "".join(_POM_DEPENDENCY % each for each in coordinates))
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        goal += ["-DexcludeTransitive=true"] if alone else []
        _run([shutil.which("mvn") or "mvn", "-B", "-f", str(pom), *goal], work / "mvn.log", seen)
        return
    dependency = _IVY_DEPENDENCY.format(str(not alone).lower())
    (work / "ivy.xml").write_text(_IVY % "".join(dependency % each for each in coordinates))
    command = [
        java(),
        "-jar",
        str(_ivy_jar()),
        "-ivy",
        str(work / "ivy.xml"),
        "-settings",
        str(_ivy_settings(work)),
        "-confs",
        "default",
    ]
    pattern = f"{folder}/[artifact]-[revision](-[classifier]).[ext]"
    _run(
        [*command, "-cache", str(work / "ivy-cache"), "-types", "jar", "bundle", "-retrieve", pattern],
        work / "ivy.log",
        seen,
    )


def there(folder: Path, work: Path) -> set[str]:
    """The names of the jars that have arrived: in the folder, in Ivy's cache, or in Maven's own, as its log says."""
    log = work / "mvn.log"
    said = log.read_text(errors="replace") if log.is_file() else ""
    downloaded = set(re.findall(r"Downloaded from [^\n]*/([^/\s]+\.jar) ", said))
    return downloaded | {path.name for place in (folder, work) for path in place.rglob("*.jar")}


def central_mirror(settings: Sequence[Path] | None = None) -> str | None:
    """The url of the first mirror of Maven Central in Maven's settings files, or None."""
    homes = [Path.home() / ".m2"] + [
        Path(os.environ[name]) / "conf" for name in ("MAVEN_HOME", "M2_HOME") if os.environ.get(name)
    ]
    for path in settings if settings is not None else [home / "settings.xml" for home in homes]:
        if not path.is_file():
            continue
        try:
            root = ET.parse(path).getroot()
        except ET.ParseError as error:
            raise StackError(f"{path} is not valid XML: {error}", "correct it: Maven cannot read it either") from error
        for mirror in root.findall("{*}mirrors/{*}mirror"):
            patterns = [each.strip() for each in (mirror.findtext("{*}mirrorOf") or "").split(",")]
            url = (mirror.findtext("{*}url") or "").strip()
            if url and "!central" not in patterns and {"*", "external:*", "central"} & set(patterns):
                return url
    return None


def _ivy_settings(work: Path) -> Path:
    own = Path.home() / ".ivy2" / "ivysettings.xml"
    if own.is_file():
        return own
    mirror = central_mirror()
    path = work / "ivysettings.xml"
    path.write_text(_IVY_SETTINGS % (f" root={quoteattr(mirror)}" if mirror else ""))
    return path


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar")) if spec and spec.origin else []
    if not jars:
        raise StackError(
            "neither mvn nor pyspark's Ivy is here to fetch jars with", "run make install, or install Maven"
        )
    return jars[-1]


def _run(command: Sequence[str], log: Path, seen: Callable[[], None]) -> None:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            code = _wait(process, seen)
        except BaseException:
            process.kill()
            raise
    seen()
    if code:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        said = f"ran for {DEADLINE_SECONDS} s without ending" if code == -1 else f"ended with exit code {code}"
        raise StackError(
            f"fetching from Maven Central failed: {Path(command[0]).name} {said}; the end of {log}:\n{last}",
            "check the network, or set a mirror in ~/.m2/settings.xml, and run it again",
        )


def _wait(process: subprocess.Popen[bytes], seen: Callable[[], None]) -> int:
    """The exit code, or -1 if it did not end in time."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        try:
            return process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            seen()
    process.kill()
    return -1
