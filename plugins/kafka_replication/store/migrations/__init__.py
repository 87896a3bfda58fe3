"""The steps from the first schema of the store to the current one, as Alembic revisions; `env` runs them.

To change the schema: add a file ``versions/vNNNN_what.py`` with ``revision = "NNNN"`` (the number after the last one),
change `kafka_replication.store.schema` in the same way and raise its SCHEMA_VERSION to that number. A revision that was
released never changes. Processes of the version before may still be at work while it runs: add columns that have a
default or take null, remove nothing that they write.
"""

from __future__ import annotations

import logging
import threading

from sqlalchemy import Connection

# Alembic keeps its connection in module variables, so only one upgrade at a time can run in a process.
_ONE_AT_A_TIME = threading.Lock()


def upgrade(connection: Connection) -> None:
    """Run the missing revisions inside the caller's transaction. A store without Alembic's table gets all of them."""
    logging.getLogger("alembic").setLevel(logging.WARNING)  # its messages do not help an operator
    from alembic import command  # takes 0.3 s to import, and hardly any process needs it
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", f"{__package__}:.")
    config.attributes["connection"] = connection
    with _ONE_AT_A_TIME:
        command.upgrade(config, "head")
