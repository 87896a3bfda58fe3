"""The built wheel, installed into an environment that has nothing else of this repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pyspark

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "plugins" / "kafka_replication"


def build(folder: Path) -> Path:
    """Build the wheel, as `pip install` does: with its build requirements in an environment of their own."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(PACKAGE, source / "plugins" / "kafka_replication", ignore=ignored)
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return wheel_of(source, folder)


def wheel_of(source: Path, folder: Path) -> Path:
    """Build the wheel of a folder or a source distribution, as a user of it does."""
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(source))
    (wheel,) = folder.glob("*.whl")
    return wheel


def distributed(folder: Path) -> tuple[Path, Path]:
    """What `make dist` builds in a copy of this repository: the wheel, and the source distribution."""
    assert UV, "make dist needs uv, which requirements-dev.txt brings"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    subprocess.run(["make", "--old-file=install", "dist", f"UV={UV}"], cwd=folder, check=True)
    (wheel,), (source,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, source


def install(wheel: Path, folder: Path) -> Path:
    """A fresh environment with the wheel; its dependencies are the ones that the tests run with. Returns its folder of
    programs.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{Path(pyspark.__file__).parents[1]}\n")
    _pip(
        "--python",
        str(folder / "bin" / "python"),
        "install",
        "--no-deps",
        "--no-index",
        "--ignore-installed",
        str(wheel),
    )
    return folder / "bin"


UV = shutil.which("uv", path=f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{Path(sys.executable).parent}")


def resolve(folder: Path, *wanted: str, of_day: str | None = None) -> Path:
    """Installs this and what its metadata asks for, as a user does: from a registry, into an environment that has
    nothing else of this one. ``of_day``: nothing that is younger, which uv alone can say. Returns its folder of programs.
    """
    if not folder.exists():
        venv.create(folder, with_pip=False, symlinks=True)
    python = str(folder / "bin" / "python")
    if UV:
        older = ["--exclude-newer", of_day] if of_day else []
        subprocess.run([UV, "pip", "install", "--quiet", "--python", python, *older, *wanted], check=True)
    else:
        assert of_day is None
        _pip("--python", python, "install", *wanted)
    return folder / "bin"


def files() -> set[str]:
    """What of the package a wheel has to hold."""
    paths = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(PACKAGE.parent).as_posix() for path in paths}


def _pip(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments],
        check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
