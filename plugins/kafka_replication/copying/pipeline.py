"""Applies `exclude_from`, `filter` and `transform` to the records between source and target.

Pure: the copier and the audit call the same code, and for the same record it gives the same result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from kafka_replication.config import PipelineDefinition
from kafka_replication.config.expression import parse
from kafka_replication.config.names import PROVENANCE
from kafka_replication.copying.sink import Record, RecordWriter, RefusedAt, Screen
from kafka_replication.copying.steps import (
    Origin,
    Step,
    StepFailed,
    exclusion,
    filtering,
    hash_of,
    imported,
    provenance,
    transforming,
)
from kafka_replication.ledger.entries import Receipt, Transform
from kafka_replication.ledger.offset_map import WrittenOffsets
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.verification.digests import Fingerprint
from kafka_replication.verification.newest import Change

# Changes when the same definition would give other records than before. It is a part of every hash.
VERSION = 1
MOST_BYTES = 1 << 20  # that are made before they are given to the writer


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps of one replication, in their order. ``identity`` is the form in which a receipt stores them."""

    identity: Transform
    steps: Sequence[tuple[str, Step]]

    def outputs(self, record: Record, origin: Origin) -> Sequence[Record]:
        """The records to write for this one; none if it is left out. Every output has the source offset of the record.

        Raises RefusedAt, which names the step and the offset and shows nothing of the record.
        """
        records: Sequence[Record] = (record,)
        for name, step in self.steps:
            try:
                records = [made for one in records for made in step(one, origin)]
            except StepFailed as failure:
                offset, timestamp, key, value, headers = record
                digest = Fingerprint()
                digest.add(timestamp, key, value, headers)
                raise RefusedAt(
                    f"{origin}: {name} fails for the record at offset {offset} (partition {origin.partition}, digest"
                    f" {digest.hexdigest()}): {failure}",
                    f"correct {name}, then run again: the records before offset {offset} are copied, later ones are"
                    " not",
                    offset,
                    kind=FailureKind.TRANSFORM,
                    error=failure.error,
                    key=key,
                ) from None
        return records


def change_of(pipeline: Pipeline | None, key: PartitionKey, receipt: Receipt) -> Change | None:
    """The function that makes the records of a chunk anew from the source's. None: the chunk was copied with another
    filter or transform than this ``pipeline``.
    """
    if receipt.transform != (pipeline.identity if pipeline else None):
        return None
    if pipeline is None:
        return lambda record: (record,)
    return partial(pipeline.outputs, origin=Origin(receipt.ids.source_cluster, key.source.topic, key.source.partition))


def load(definition: PipelineDefinition) -> Pipeline | None:
    """The pipeline, ready for records; None if it changes nothing. Imports the user's functions.

    Raises BadInput for a function that cannot be imported or called.
    """
    if not definition:
        return None
    steps, described = list[tuple[str, Step]](), list[str]()

    def add(name: str, text: str, step: Step) -> None:
        steps.append((name, step))
        described.append(text)

    if definition.exclude_from:
        add("exclude_from", json.dumps(sorted(definition.exclude_from)), exclusion(definition.exclude_from))
    if definition.filter is not None:
        add("filter", definition.filter, filtering(parse(definition.filter)))
    for name in definition.transform:
        if name == PROVENANCE:
            add(name, "", provenance)
        else:
            function, text = imported(name)
            add(name, text, transforming(function))
    content = json.dumps([VERSION, [[name, text] for (name, _), text in zip(steps, described, strict=True)]])
    return Pipeline(Transform(", ".join(name for name, _ in steps), hash_of(content)), steps)


@dataclass(slots=True)
class PipelineWriter:
    """Stands between the reader of one chunk and its writer: applies the pipeline, and counts the records that are
    written.

    ``written`` is about the records on the target, ``copied`` and ``filtered`` count records of the source.
    """

    pipeline: Pipeline
    origin: Origin
    writer: RecordWriter
    _: KW_ONLY
    written: Fingerprint = field(default_factory=Fingerprint)
    copied: int = 0
    filtered: int = 0
    offsets: WrittenOffsets = field(default_factory=WrittenOffsets)  # of the source, of what is written
    _last: Record | None = None  # the last source record that was not set aside

    @property
    def screen(self) -> Screen | None:
        """The screen of the writer. It checks the records that the pipeline makes."""
        return (lambda _: None) if self.writer.screen is not None else None  # every source record passes

    @property
    def full(self) -> bool:
        return self.writer.full

    def set_aside(self, record: Record, failure: Failure) -> None:
        self.writer.set_aside(record, failure)

    def _outputs(self, record: Record) -> Sequence[Record] | None:
        """The records to write for this one; None if it is set aside. Raises RefusedAt."""
        screen = self.writer.screen
        try:
            made = self.pipeline.outputs(record, self.origin)
        except RefusedAt as refused:
            if screen is None:
                raise
            self.writer.set_aside(record, refused.failures[0])
            return None
        if screen is not None and (failure := next(filter(None, map(screen, made)), None)):
            self.writer.set_aside(record, failure)
            return None
        return made

    def write(self, records: Sequence[Record]) -> None:
        """Give the writer the outputs of these source records. Raises the writer's errors, and RefusedAt of a step."""
        batch, started = list[Record](), self.written.bytes
        for record in records:
            made = self._outputs(record)
            if made is None:
                continue
            self._last = record
            if made:
                self.copied += 1
            else:
                self.filtered += 1
            for _, timestamp, key, value, headers in made:
                self.written.add(timestamp, key, value, headers)
            batch += made
            if self.written.bytes - started > MOST_BYTES:
                self._give(batch)
                batch, started = [], self.written.bytes
        self._give(batch)

    def _give(self, batch: Sequence[Record]) -> None:
        self.offsets.add_records(batch)
        self._among_sources(lambda: self.writer.write(batch))

    def finish(self) -> Any:
        """Finish the chunk of the writer."""
        return self._among_sources(lambda: self.writer.finish(self.written.hexdigest()))

    def _among_sources(self, call: Callable[[], Any]) -> Any:
        """Call the writer. If it refuses one of its records, its error gets the number of source records that they come
        from: the copier halves this number until it finds the refused record.
        """
        try:
            return call()
        except RefusedAt as refused:
            if refused.offset is not None:
                raise
            read, kind, error = self.copied + self.filtered, refused.kind, refused.error
            if read > 1:
                raise RefusedAt(refused.what, refused.remedy, None, read, kind=kind, error=error) from refused
            assert self._last is not None
            origin, offset = self.origin, self._last[0]
            raise RefusedAt(
                f"{origin}: the record at offset {offset} (partition {origin.partition}) cannot be copied, as one of"
                f" the {self.written.count} records that the transform makes of it is refused: {refused.what}",
                f"raise the limit, or correct the transform, then run again: the records before offset {offset} are"
                " copied, later ones are not",
                offset,
                kind=kind,
                error=error,
                key=self._last[2],
            ) from refused
