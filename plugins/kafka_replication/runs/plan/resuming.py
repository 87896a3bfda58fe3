"""Another try of a run carries out the stored plan, once what the target has lost since then is mended."""

from __future__ import annotations

from dataclasses import replace

from kafka_replication.ledger.view import copied_until
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.planning import plan_codec
from kafka_replication.planning.plan import PartitionPlan, Plan
from kafka_replication.runs.plan.demand import Live, World
from kafka_replication.runs.plan.looking import look
from kafka_replication.runs.plan.mending import mend
from kafka_replication.runs.replicate.fencing import fence_stale_producers
from kafka_replication.runs.run import LeasedRun, Request


def resumed(run: LeasedRun, plan: Plan) -> Plan:
    """The plan for one more try. What the target lost since the plan was made is mended, as a new run does, and comes
    first in the range of its partition; such a plan replaces the stored one. Where it cannot be mended, the session of
    the partition refuses to append.

    Raises Busy, OutOfTime, Unreachable and what reading the ledger raises.
    """
    if plan.idle:
        return plan
    run.retry("fencing", lambda: fence_stale_producers(run))
    if not run.comparison.lost_now(run.view(), plan.workable):
        return plan
    topics = tuple(sorted({planned.key.source.topic for planned in plan.partitions}))
    mended = mend(run, plan, look(run, Live(Request(topics=topics)), opens=False))
    if not mended.done and not mended.left:
        return plan
    refusing = run.replication.mend == "report"
    anew = replace(
        plan,
        partitions=tuple(
            mended.noted(_with_lost(one, mended.world) if one.key in mended.done else one, refusing=refusing)
            for one in plan.partitions
        ),
    )
    if (stored := run.store.run(run.run_id)) is not None:
        run.store.start_run(
            run.run_id, run.replication.name, stored.kind, plan_codec.encode(anew), instead_of=stored.plan
        )
    return anew


def _with_lost(planned: PartitionPlan, world: World) -> PartitionPlan:
    """The partition with what has to be copied again before its range, and what is left to read back. A range of older
    offsets stays as it is: its session refuses to go on before the lost ones are copied.
    """
    position, first = world.view.positions[planned.key], copied_until(world.view.positions[planned.key])
    copy = planned.copy or OffsetRange(position.next_offset, position.next_offset)
    if first < position.next_offset <= copy.until:
        planned = replace(planned, copy=OffsetRange(min(first, copy.from_), copy.until))
    return replace(planned, verify=world.view[planned.key].pending())
