"""An auth manager of Airflow for the tests: Airflow's simple one, but a user ``only-NAME`` sees the DAGs of one replication alone."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

ONLY = "only-"


class AuthOfOneDag(SimpleAuthManager):
    def is_authorized_dag(self, *, user: Any, details: Any = None, **others: Any) -> bool:
        allowed = super().is_authorized_dag(user=user, details=details, **others)
        if not user.username.startswith(ONLY) or details is None or details.id is None:
            return allowed
        name = user.username.removeprefix(ONLY)
        return allowed and (details.id == name or details.id.startswith(f"{name}."))
