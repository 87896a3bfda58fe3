"""A mapping of an index, documents that fit it, and documents that it refuses."""

from __future__ import annotations

from typing import Any

MAPPING: dict[str, Any] = {
    "properties": {
        "n": {"type": "long"},
        "ok": {"type": "boolean"},
        "at": {"type": "date"},
        "name": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
        "lenient": {"type": "integer", "ignore_malformed": True},
        "customer": {"properties": {"age": {"type": "integer"}}},
        "strict": {"dynamic": "strict", "properties": {"known": {"type": "keyword"}}},
        "stored": {"type": "object", "enabled": False, "dynamic": "strict"},
        "lines": {"type": "nested", "properties": {"amount": {"type": "double"}}},
    }
}
FITTING: list[dict[str, Any]] = [
    {"n": 1, "ok": True, "at": "2024-01-01", "name": "a", "customer": {"age": 3}},
    {"n": "12", "ok": "false", "name": 3, "customer": None},
    {"n": None, "n2": "new field", "lenient": "many"},
    {"n": [1, 2, "3"], "lines": [{"amount": 1.5}, {"amount": "2"}]},
    {"strict": {"known": "x"}},
    {"n": ""},
    {"stored": {"any": [1, "many"]}},
    {"stored": "no object"},
]
CONFLICTING: list[tuple[dict[str, Any], str]] = [
    ({"n": "many"}, "field [n] is of type long"),
    ({"n": True}, "field [n] is of type long"),
    ({"n": {"deep": 1}}, "field [n] is of type long"),
    ({"n": [1, "many"]}, "field [n] is of type long"),
    ({"ok": "yes"}, "field [ok] is of type boolean"),
    ({"name": {"first": "a"}}, "field [name] is of type text"),
    ({"customer": "Ann"}, "field [customer] is of type object"),
    ({"customer": {"age": "old"}}, "field [customer.age] is of type integer"),
    ({"lines": [{"amount": 1}, {"amount": "much"}]}, "field [lines.amount] is of type double"),
    ({"strict": {"other": 1}}, "no field [strict.other]"),
]
