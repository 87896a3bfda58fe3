"""The JSON schemas of a replication file and of each command's ``--json`` document, in docs/schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from kafka_replication.api import documents
from kafka_replication.config.model import Replication

REPLICATION = "replication"
# The documents of each command, by its name. A command that fails prints a `FailureDocument`.
COMMANDS: Final[Mapping[str, tuple[Any, ...]]] = {
    "check": (documents.CheckDocument, documents.CheckFailureDocument),
    "plan": (documents.PlanDocument, documents.PlanFailureDocument),
    "run": (documents.RunDocument,),
    "backfill": (documents.RunDocument, documents.BackfillPlanDocument),
    "status": (documents.StatusDocument,),
    "overview": (documents.OverviewDocument,),
    "verify": (documents.VerifyDocument,),
    "audit": (documents.AuditDocument,),
    "ledger": (documents.LedgerDocument, documents.RebuiltDocument),
    "failed": (documents.FailedDocument, documents.DecidedDocument),
    "groups": (documents.GroupsDocument,),
    "acls": (documents.AclsDocument,),
    "approve-gap": (documents.ApprovedDocument,),
    "reset": (documents.ResetDocument,),
    "adopt": (documents.AdoptDocument,),
    "certify": (documents.CertifiedDocument, documents.CheckedCertificate),
    "cutover": (documents.TurnDocument,),
    "failover": (documents.FailoverDocument,),
    "failback": (documents.TurnDocument,),
    "drill": (documents.DrillDocument,),
    "watch": (documents.WatchDocument,),
}


class _Schema(GenerateJsonSchema):
    """Without titles of fields, which only repeat their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


class _Documents(_Schema):
    """A document has all of its keys, whatever defaults its class has, but for ``OPTIONAL`` ones. No key has limits."""

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ARG002
        return True

    def dataclass_schema(self, schema: Any) -> Any:
        made = super().dataclass_schema(schema)
        optional = getattr(schema["cls"], "OPTIONAL", ())
        made.pop("additionalProperties", None)
        return {**made, "required": [name for name in made["required"] if name not in optional]}

    def int_schema(self, schema: Any) -> Any:  # noqa: ARG002
        return {"type": "integer"}

    def default_schema(self, schema: Any) -> Any:
        return self.generate_inner(schema["schema"])


def schemas() -> dict[str, str]:
    """The name of each schema's file and its text, which ends in a newline."""
    made = {REPLICATION: Replication.model_json_schema(schema_generator=_Schema)}
    for command, kinds in COMMANDS.items():
        made[command] = _one_of(f"kafka-replication {command} --json", [*kinds, *_failures(command)])
    head = {"$schema": GenerateJsonSchema.schema_dialect}
    return {f"{name}.schema.json": _text(head | schema) for name, schema in made.items()}


def _text(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=2).replace("``", "`") + "\n"


def _failures(command: str) -> list[Any]:
    """A watch goes on when it cannot find out something, and says so in its document."""
    return [] if command == "watch" else [documents.FailureDocument]


def _one_of(title: str, kinds: list[Any]) -> dict[str, Any]:
    """The schema of a document that is of one of these kinds."""
    each, definitions = TypeAdapter.json_schemas(
        [(kind, "serialization", TypeAdapter(kind)) for kind in kinds], schema_generator=_Documents
    )
    return {"title": title, "anyOf": [each[kind, "serialization"] for kind in kinds], **definitions}
