"""The same scenario as the integration tests'."""

from tests.integration.conftest import clusters, scene

__all__ = ["clusters", "scene"]
