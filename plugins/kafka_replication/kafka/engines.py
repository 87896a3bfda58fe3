"""The copy engines, one package for each, and their names for `copy.engine`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kafka_replication.config import Copy
from kafka_replication.copying.engine import Chosen, CopyEngine, CopyTask, choose
from kafka_replication.copying.pipeline import Pipeline
from kafka_replication.copying.sink import Sink
from kafka_replication.kafka.clients import ClientConfig
from kafka_replication.kafka.record_engine import RecordEngine
from kafka_replication.model import choices
from kafka_replication.model.choices import BATCH, RECORD
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.runtime.extras import without

log = logging.getLogger(__name__)

Make = Callable[..., CopyEngine]  # of a source, the settings, a pipeline or None, and the deadline


def _batch(source: ClientConfig, settings: Copy, pipeline: Pipeline | None, _: Deadline = NEVER) -> CopyEngine:
    from kafka_replication.kafka.batch_engine import BatchEngine  # only a worker that needs it loads it

    return BatchEngine(source, settings, pipeline)


ENGINES: Mapping[str, Make] = {RECORD: RecordEngine, BATCH: _batch}
FALLBACK = RECORD  # supports every range


def engine_for(
    task: CopyTask,
    settings: Copy,
    source: ClientConfig,
    sink: Sink,
    pipeline: Pipeline | None = None,
    deadline: Deadline = NEVER,
) -> Chosen:
    """The engine that `copy.engine` names, or the record engine if that one does not support the range. For `auto` that
    is the batch engine, but for a short range, and where its packages are not installed.
    """
    engines, absent = list[CopyEngine](), ""
    choice = choices.chosen(settings.engine, task.range.span)
    for name in dict.fromkeys((choice.engine, FALLBACK)):
        try:
            engines.append(ENGINES[name](source, settings, pipeline, deadline))
        except ImportError as missing:
            if settings.engine != choices.AUTO:
                raise
            absent = without(missing)
            log.info("%s %s: not in whole batches: %s", task.key.source, task.range, absent)
    found = choose(engines, task, sink)
    # A slice, or the rest of a range, may be short although its range is not.
    short = choice.why if (task.planned_engine, choice.engine) == (BATCH, RECORD) else ""
    return found._replace(why=absent or found.why or short)


def exact_for(
    task: CopyTask,
    settings: Copy,
    source: ClientConfig,
    sink: Sink,
    pipeline: Pipeline | None = None,
    deadline: Deadline = NEVER,
) -> CopyEngine | None:
    """The batch engine, for few records that the client of the record engine would change, however fast it is; None if
    it cannot copy to this target. Raises Unreachable.
    """
    insisting = settings.model_copy(update={"engine": BATCH})
    try:
        engine = ENGINES[BATCH](source, insisting, pipeline, deadline)
    except ImportError:
        return None
    return None if engine.supports(task, sink) else engine


def fallback(
    settings: Copy, source: ClientConfig, pipeline: Pipeline | None = None, deadline: Deadline = NEVER
) -> CopyEngine:
    """The engine that copies what another one hands over."""
    return ENGINES[FALLBACK](source, settings, pipeline, deadline)
