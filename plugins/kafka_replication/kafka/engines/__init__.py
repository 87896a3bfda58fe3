"""The copy engines, one package for each, and their names for `copy.engine`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka_replication.config import Copy
from kafka_replication.copying.engine import CopyEngine, CopyTask, choose
from kafka_replication.copying.pipeline import Pipeline
from kafka_replication.kafka.client.clients import ClientConfig
from kafka_replication.kafka.engines.record.engine import RecordEngine
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.sinks.port import Sink

Make = Callable[..., CopyEngine]  # of a source, the settings, a pipeline or None, and the deadline


def _batch(source: ClientConfig, settings: Copy, pipeline: Pipeline | None, _: Deadline = NEVER) -> CopyEngine:
    from kafka_replication.kafka.engines.batch.engine import BatchEngine  # only a worker that needs it loads it

    return BatchEngine(source, settings, pipeline)


ENGINES: Mapping[str, Make] = {"record": RecordEngine, "batch": _batch}
FALLBACK = "record"  # supports every range


def engine_for(
    task: CopyTask,
    settings: Copy,
    source: ClientConfig,
    sink: Sink,
    pipeline: Pipeline | None = None,
    deadline: Deadline = NEVER,
) -> CopyEngine:
    """The engine that `copy.engine` names, or the record engine if that one does not support the range."""
    names = dict.fromkeys((settings.engine, FALLBACK))
    return choose([ENGINES[name](source, settings, pipeline, deadline) for name in names], task, sink)


def exact_for(
    task: CopyTask,
    settings: Copy,
    source: ClientConfig,
    sink: Sink,
    pipeline: Pipeline | None = None,
    deadline: Deadline = NEVER,
) -> CopyEngine | None:
    """The engine that `copy.engine` names, for few records that the client of the other one would change; None if it
    cannot copy to this target. Raises Unreachable.
    """
    engine = ENGINES[settings.engine](source, settings.model_copy(update={"least_batch_bytes": 0}), pipeline, deadline)
    return None if engine.supports(task, sink) else engine


def fallback(
    settings: Copy, source: ClientConfig, pipeline: Pipeline | None = None, deadline: Deadline = NEVER
) -> CopyEngine:
    """The engine that copies what another one hands over."""
    return ENGINES[FALLBACK](source, settings, pipeline, deadline)
