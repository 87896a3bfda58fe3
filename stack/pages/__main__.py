"""Writes the pages and schemas that are made from the code. Tests fail while one of them is old."""

from __future__ import annotations

from pathlib import Path

from stack.pages import combinations, configuration, errors, schema

DOCS = Path(__file__).parents[2] / "docs"

if __name__ == "__main__":
    (DOCS / "configuration.md").write_text(configuration.render())
    (DOCS / "errors.md").write_text(errors.render())
    delivery = DOCS / "delivery.md"
    delivery.write_text(delivery.read_text().partition(combinations.TITLE)[0] + combinations.render())
    for name, text in schema.schemas().items():
        (DOCS / "schema" / name).write_text(text)
