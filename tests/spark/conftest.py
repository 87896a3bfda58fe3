"""The fixtures of every test here."""

from tests.support.scenes import clusters, scene

__all__ = ["clusters", "scene"]
