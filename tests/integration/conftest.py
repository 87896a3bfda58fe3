"""The fixtures of every test here."""

from tests.support.failed import with_failures
from tests.support.scenes import clusters, own_scene, own_source_scene, scene, source_data

__all__ = ["clusters", "own_scene", "own_source_scene", "scene", "source_data", "with_failures"]
