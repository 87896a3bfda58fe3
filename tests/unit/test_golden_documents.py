"""Documents that 0.1.0 prints are read by every later version.

``tests/golden/documents/1`` has one document of each kind, with all of its keys. A later version may add keys that have
a default; none goes, and none changes its meaning.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from kafka_replication.api import documents
from stack.pages import schema
from tests.support import published_schema

GOLDEN = Path(__file__).parents[1] / "golden" / "documents" / "1"
KINDS = {kind.__name__: (command, kind) for command, kinds in schema.COMMANDS.items() for kind in kinds} | {
    documents.FailureDocument.__name__: ("run", documents.FailureDocument)
}


def test_each_kind_of_document_is_kept() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(KINDS)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_document_of_the_first_release_is_read_and_written_with_all_of_its_keys(name: str) -> None:
    command, kind = KINDS[name]
    kept = json.loads((GOLDEN / f"{name}.json").read_text())
    adapter = TypeAdapter[Any](kind)
    written = json.loads(adapter.dump_json(adapter.validate_json(json.dumps(kept)), by_alias=True))
    assert holds(written, kept)
    published_schema.check(command, written)


def holds(later: Any, kept: Any) -> bool:
    """True if ``later`` has everything that was kept, and perhaps more keys."""
    if isinstance(kept, dict):
        return all(key in later and holds(later[key], value) for key, value in kept.items())
    if isinstance(kept, list):
        return len(later) == len(kept) and all(map(holds, later, kept))
    return bool(later == kept)
