"""The commands for lost or re-created data: ``approve-gap``, ``reset``, ``audit``; and ``adopt``, for a copy of another
tool.

Each loads what it alone needs when it is called: all commands start with this module.

The command for records that could not be copied: ``failed list|show|retry|discard FILE``.

The commands for what goes on on the target beside records: ``groups``, and ``acls plan|apply FILE`` for rights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from kafka_replication.cli.command_frame import File, Json, Result, act, until_time, user
from kafka_replication.cli.terminal_progress import with_spark
from kafka_replication.documents import ApprovedDocument, GapRow, ResetDocument
from kafka_replication.documents import as_json as json_of
from kafka_replication.model.choices import Action, GroupAction
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import MAX_OFFSET, OffsetRange, TopicPartition
from kafka_replication.runs.leasing import leased, topic_scope
from kafka_replication.runs.run import Run
from kafka_replication.spark.launcher import Launcher

Topic = Annotated[str, typer.Option("--topic", help="The source topic.", show_default=False)]
TargetTopic = Annotated[
    str, typer.Option("--target-topic", help="The target topic, if it is not the one that the file gives.")
]


def approve_gap(
    file: File,
    topic: Topic,
    partition: Annotated[int, typer.Option("--partition", help="Its partition.", show_default=False)],
    from_: Annotated[int, typer.Option("--from", help="The first lost offset.", show_default=False)],
    until: Annotated[int, typer.Option("--until", help="The first offset after the gap.", show_default=False)],
    reason: Annotated[
        str,
        typer.Option("--reason", help="Why the loss is accepted. Reports show it from then on.", show_default=False),
    ],
    by: Annotated[
        str, typer.Option("--by", help="Who approves; the user of this terminal if not given.", show_default=False)
    ] = "",
    target_topic: TargetTopic = "",
    as_json: Json = False,
) -> None:
    """Give up exactly these source offsets, which can no longer be read, so that copying continues after them."""

    def action(run: Run) -> Result:
        from kafka_replication.runs import repair

        try:
            lost = TopicPartition(topic, partition)
        except ValueError as e:
            raise BadInput(str(e), "check --topic and --partition") from e
        wanted = repair.Approval(
            at=lost,
            range=_range(from_, until),
            reason=reason,
            by=by or user(),
            target_topic=target_topic or None,
        )
        with leased(run, topic_scope(wanted.key(run.replication).target_topic)) as leased_run:
            gap, new = repair.approve(leased_run, wanted)
        shown = GapRow.of(wanted.key(run.replication), gap)
        note = "recorded; the next run continues after the gap" if new else "was recorded before; nothing changed"
        return ApprovedDocument(replication=run.replication.name, new=new, gap=shown), f"{shown}\n{note}", 0

    act(file, as_json, action, writes=True)


def reset(
    file: File,
    topic: Topic,
    confirm: Annotated[
        str, typer.Option("--confirm", help="The source topic's name again, as a confirmation.", show_default=False)
    ],
    target_topic: TargetTopic = "",
    as_json: Json = False,
) -> None:
    """Start one topic again after its source or target topic was re-created. Everything from `start_from` on is copied
    again.
    """

    def action(run: Run) -> Result:
        from kafka_replication.runs.reset import reset_topic

        if confirm != topic:
            raise BadInput(
                f"--confirm {confirm!r} is not the topic {topic!r}; nothing was changed", f"say --confirm {topic}"
            )
        with leased(run, topic_scope(target_topic or run.replication.target_topic(topic))) as leased_run:
            done = reset_topic(leased_run, topic, target_topic or None)
        document = ResetDocument.of(run.replication.name, done)
        lines = [f"{row.key}: generation {row.generation} starts at offset {row.start}" for row in document.partitions]
        return document, "\n".join(lines), 0

    act(file, as_json, action, writes=True)


def adopt(
    context: typer.Context,
    file: File,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            help="Who says where the copy ends: mirrormaker2, data (only the records themselves), or a JSON file with"
            " the next source offset by topic and partition.",
            show_default=False,
        ),
    ],
    apply: Annotated[bool, typer.Option("--apply", help="Write to the ledger; without it nothing is changed.")] = False,
    prove: Annotated[
        bool, typer.Option("--prove", help="Compare the whole copy, not only its end; a large one on Spark.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Go on behind a copy that another tool made, without a hole or a double. Stop that tool first.

    Compares both sides to find where each partition's copy ends, and refuses a partition where they do not prove it.
    The exit code is 1 if one is refused.
    """

    def action(run: Run, launcher: Launcher) -> Result:
        from kafka_replication.runs import adopting

        asked = adopting.Adoption(from_=from_, whole=prove)
        with launcher as spark:
            document = (adopting.adopt if apply else adopting.preview)(run, asked, spark)
        return document, document.text, int(any(row.state == "refused" for row in document.partitions))

    act(file, as_json, lambda run: with_spark(run, context.obj, action), writes=apply, looks=not apply)


OnlyTopic = Annotated[str, typer.Option("--topic", help="Only this source topic.")]
OnlyPartition = Annotated[int | None, typer.Option("--partition", help="Only this partition.")]
FromOffset = Annotated[int, typer.Option("--from", help="The first source offset; widened to whole chunks.")]
UntilOffset = Annotated[
    int | None, typer.Option("--until", help="The source offset to stop at; widened to whole chunks.")
]


def audit(
    context: typer.Context,
    file: File,
    topic: OnlyTopic = "",
    partition: OnlyPartition = None,
    from_: FromOffset = 0,
    until: UntilOffset = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="Only so many chunks of each partition, drawn by --seed.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Draw the sample that an earlier report names with this seed.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write all differences to this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the copied records with the source one by one. If the source has lost them, compare with the receipts.

    Changes no record, and may work while a run works. What is missing is noted, so that status offers a backfill. Reads
    both sides once, a large amount on Spark. The exit code is 1 if something differs.
    """

    def action(run: Run, launcher: Launcher) -> Result:
        from kafka_replication.runs import audit as auditing
        from kafka_replication.verification.auditing import drawn

        range_ = _range(from_, MAX_OFFSET if until is None else until)
        request = auditing.AuditRequest(topic or None, partition, range_, drawn(sample, seed))
        with launcher as spark:
            audited = auditing.audit(run, request, spark)
        document = audited.document()
        if report is not None:
            try:
                report.write_text(json.dumps(json_of(document), indent=2) + "\n")
            except OSError as e:
                remedy = "name a file in a folder that exists and is yours"
                raise BadInput(f"cannot write {report}: {e.strerror}", remedy) from e
        return document, f"{audited.text()}\n{audited.verdict}", int(audited.outcome != "clean")

    act(file, as_json, lambda run: with_spark(run, context.obj, action))


def certify(
    context: typer.Context,
    file: File,
    topic: OnlyTopic = "",
    partition: OnlyPartition = None,
    from_: FromOffset = 0,
    until: Annotated[
        str,
        typer.Option(
            "--until",
            help="The source offset to stop at, widened to whole chunks; or an RFC 3339 time: the first record of that"
            " time or later is the end of each partition.",
        ),
    ] = "",
    out: Annotated[Path, typer.Option("--out", help="The folder for both files.", show_default="this one")] = Path(),
    key: Annotated[
        str,
        typer.Option(
            "--key",
            help="The private key (Ed25519): its PEM file, or connection:<id>.",
            show_default="KAFKA_REPLICATION_SIGNING_KEY",
        ),
    ] = "",
    check: Annotated[
        Path | None, typer.Option("--check", help="Check this certificate, its .json and .html file; write none.")
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="With --check: the PEM file of the key that is expected.")
    ] = None,
    data: Annotated[
        bool, typer.Option("--data", help="With --check: compare ledger and records with it, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a signed certificate of what was copied and verified, as JSON and as a page; or check one.

    The exit code is 1 if not everything is verified, or if something is wrong with the certificate that is checked.
    """

    def write(run: Run) -> Result:
        from kafka_replication.runs import audit, certifying

        is_time = bool(until) and not until.isdecimal()
        range_ = _range(from_, int(until) if until and not is_time else MAX_OFFSET)
        request = audit.AuditRequest(topic or None, partition, range_)
        end = until_time(until) if is_time else None
        document = certifying.certify(run, out, request, until=end, key=key)
        return document, document.text, int(not document.certificate.verified)

    def checked(run: Run, launcher: Launcher) -> Result:
        from kafka_replication.runs import certificate_checks

        assert check is not None
        document, made = certificate_checks.check(check, public_key, run.clusters.secret)
        if data:
            with launcher as spark:
                document = certificate_checks.with_data(run, document, made, spark)
        return document, document.text, int(bool(document.problems))

    if check is None:
        if data or public_key:
            raise typer.BadParameter("--data and --public-key are for --check alone")
        act(file, as_json, write, writes=True, looks=True)
    if topic or partition is not None or from_ or until or key:
        raise typer.BadParameter("a certificate that is checked says itself what it is about: leave out other options")
    act(file, as_json, lambda run: with_spark(run, context.obj, checked))


def drill(
    file: File,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="Write a certificate with its result to this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """See what a failover would leave if the source died now, and keep the result in the store. Changes nothing else.

    The exit code is 1 if it is worse than `objectives` in the file ask, or if the target has lost data.
    """

    def action(run: Run) -> Result:
        from kafka_replication.runs import certifying
        from kafka_replication.runs.drill import drill

        document = drill(run)
        about = f"failover drill: {document.said}"
        made = certifying.certify(run, certificate, about=about) if certificate else None
        return document, "\n".join([document.text, *(made.where if made else ())]), int(document.failed)

    act(file, as_json, action, writes=True, looks=True)


def _range(from_: int, until: int) -> OffsetRange:
    try:
        return OffsetRange(from_, until)
    except ValueError as e:
        raise BadInput(
            f"--from {from_} --until {until}: {e}", "give the first lost offset and the first one after the gap"
        ) from e


def groups(
    action: Annotated[
        GroupAction,
        typer.Argument(help="list (as they were seen last), plan (change nothing) or apply.", show_default=False),
    ],
    file: File,
    group: Annotated[list[str], typer.Option("--group", help="Only this group; may be given several times.")] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Show where consumer groups go on in the target's topics, and commit these places in their name.

    A group with members on the target is left alone. No place is ahead of what was verified. The exit code is 1 if a
    group cannot be moved.
    """

    def do(run: Run) -> Result:
        from kafka_replication.runs import groups as moving

        if action == GroupAction.LIST:
            document = moving.seen_last(run)
        else:
            document = moving.move(run, apply=action == GroupAction.APPLY, only=group)
        return document, document.text(), int(document.failed)

    act(file, as_json, do, writes=action == GroupAction.APPLY, looks=action != GroupAction.APPLY)


def failed(
    action: Annotated[
        Action,
        typer.Argument(
            help="list, show, retry (copy again once the cause is gone) or discard (give up).", show_default=False
        ),
    ],
    file: File,
    topic: Annotated[str, typer.Option("--topic", help="Only of this source topic.")] = "",
    partition: Annotated[int | None, typer.Option("--partition", help="Only of this partition.")] = None,
    from_: Annotated[int | None, typer.Option("--from", help="Only from this source offset on.")] = None,
    until: Annotated[int | None, typer.Option("--until", help="Only before this source offset.")] = None,
    kind: Annotated[str, typer.Option("--kind", help="Only too_large, refused, unfaithful or transform.")] = "",
    state: Annotated[
        str,
        typer.Option(
            "--state", help="Only quarantined, skipped, retried or discarded; any. Not given: quarantined and skipped."
        ),
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="retry, discard: all of them.")] = False,
    by: Annotated[str, typer.Option("--by", help="Who decides; the user of this terminal if not given.")] = "",
    reason: Annotated[str, typer.Option("--reason", help="Why; the record's history shows it.")] = "",
    as_json: Json = False,
) -> None:
    """Show the records that could not be copied, copy them again once the cause is gone, or give them up.

    retry writes behind everything that is on the target: records that are newer at the source then lie before them.

    The exit code is 1 if a record that was to be retried or discarded stays as it was.
    """
    decides = action in (Action.RETRY, Action.DISCARD)

    def do(run: Run) -> Result:
        from kafka_replication.runs.failed import Asked, handle
        from kafka_replication.runs.retry_discard import Decision

        asked = Asked(
            topic=topic, partition=partition, from_=from_, until=until, kind=kind, state=state, everything=everything
        )
        answer = handle(run, action, asked, Decision(by=(by or user()) if decides else by, reason=reason))
        return answer.document, answer.text, int(answer.failed)

    act(file, as_json, do, writes=True)


def acls(
    action: Annotated[
        Literal["plan", "apply"], typer.Argument(help="plan shows, apply also changes.", show_default=False)
    ],
    file: File,
    as_json: Json = False,
) -> None:
    """Carry the rights (ACLs) on copied topics and groups over to the target.

    apply prints on stderr what it is about to do, and may be repeated. The section acls of the file has the choices.
    """

    def do(run: Run) -> Result:
        from kafka_replication.runs import acls as carrying

        document = carrying.look(run)
        if action == "apply":
            typer.echo(document.text(), err=True)
            document = carrying.apply(run, document)
        return document, document.text(), 0

    act(file, as_json, do, looks=True)
