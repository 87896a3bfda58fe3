"""The table of certificates: the files of the last ones, as they were made."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, delete, insert, select

from kafka_replication.model.errors import BadInput
from kafka_replication.runtime.private_json import deferred
from kafka_replication.store import connect, schema
from kafka_replication.store.database import Database, reads, writes
from kafka_replication.watermarks.sight import CertificateRow

_table = schema.certificates
_ROW = deferred(CertificateRow)
KEPT: Final = 100  # of each replication


class Certificates(Database):
    @writes
    def keep_certificate(self, db: Connection, replication: str, row: CertificateRow, json: bytes, html: bytes) -> None:
        """Keep a certificate with its files, in place of the oldest one if there are `KEPT`."""
        of_replication = _table.c.replication == replication
        newest = select(_table.c.name).where(of_replication).order_by(_table.c.made_at.desc()).limit(KEPT - 1)
        names = [*db.execute(newest).scalars()]
        db.execute(
            delete(_table).where(of_replication, _table.c.name.not_in([one for one in names if one != row.name]))
        )
        values = {
            "replication": replication,
            "name": row.name,
            "made_at": connect.clock(db),
            "json": json,
            "html": html,
        }
        db.execute(insert(_table).values(**values, document=_ROW.dump_json(row).decode()))

    @reads
    def certificates(self, db: Connection, replication: str) -> list[CertificateRow]:
        """The certificates that are kept, newest first."""
        query = select(_table.c.document).where(_table.c.replication == replication)
        return [*map(_ROW.validate_json, db.execute(query.order_by(_table.c.made_at.desc())).scalars())]

    @reads
    def certificate_file(self, db: Connection, replication: str, name: str, kind: str) -> bytes:
        """One of both files of a certificate: its ``json`` or its ``html``. Raises BadInput if it is not kept."""
        query = select(_table.c[kind]).where(_table.c.replication == replication, _table.c.name == name)
        found: bytes | None = db.execute(query).scalar_one_or_none()
        if found is None:
            raise BadInput(f"{replication} has no certificate {name}", f"the store keeps the last {KEPT} of them")
        return bytes(found)
