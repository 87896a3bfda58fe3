"""The pages of docs/ as a site: `make docs` without a warning, and nothing that is asked of another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# What a browser asks for by itself; a link is asked for when a person clicks it.
LOADED = re.compile(r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'> ]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    asked = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(asked, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "WARNING" not in said, said
    return folder


def test_every_page_is_on_the_site_and_asks_no_other_host(site: Path) -> None:
    assert {page.stem for page in DOCS.glob("*.md")} <= {page.stem for page in site.glob("*.html")}
    asked = {page.name: LOADED.findall(page.read_text()) for page in site.glob("*.html")}
    assert {name: urls for name, urls in asked.items() if urls} == {}
    for style in site.rglob("*.css"):
        assert re.findall(r"url\(\s*[\"']?(?:https?:)?//|@import", style.read_text()) == [], style
    for picture in (site / "pictures").glob("*.svg"):
        assert re.findall(r"""(?:href|src)=["']https?:|url\(\s*["']?https?:|@import""", picture.read_text()) == [], (
            picture
        )


def test_the_search_knows_the_pages(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()
    for words in ("exactly once", "no-progress", "throughput_limit"):
        assert words in index, words


def test_every_link_of_the_pages_outside_of_docs_leads_somewhere() -> None:
    """mkdocs follows those of docs/ alone, and lets none of them lead out of it."""
    for page in ROOT.glob("*.md"):
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            assert "://" in link or (ROOT / link).exists(), f"{page.name}: {link}"


def test_no_picture_is_larger_than_it_has_to_be_and_each_is_shown() -> None:
    text = "".join(page.read_text() for page in (*DOCS.glob("*.md"), ROOT / "README.md"))
    for picture in (DOCS / "pictures").iterdir():
        assert f"pictures/{picture.name})" in text, f"no page shows {picture.name}"
        assert picture.stat().st_size < 150_000, picture


def test_the_first_page_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([a-z-]+\.md)\)", (DOCS / "index.md").read_text()))
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} - linked == set()
