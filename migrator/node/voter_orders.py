"""Operators' orders to change the voters, and the description of the voters
(`migrator.rpc.operator_service.VoterSource`).

The voters' gRPC service calls `VoterOrders`. A target is decided like any write, on the image at the log's end, and is
in the journal before it is in the log. `reassignment` then leads the quorum to the target, one voter at a time. The
upgrade to voters in the log is carried out at once, and is in the journal afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from migrator.clock import monotonic_ms, wall_ms
from migrator.config.settings import Settings
from migrator.controller.context import Context
from migrator.controller.decision import Decision, RefusedError
from migrator.controller.kraft_upgrade import checked_upgrade
from migrator.controller.migration_gate import Operation
from migrator.controller.quorum_target import (
    TargetAnswer,
    TargetOrder,
    TargetRequest,
    parse_target,
    set_target,
    target_text,
)
from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.node.core import NodeCore
from migrator.node.quorum.addresses import OWN_KRAFT_VERSIONS
from migrator.node.reassignment import ReassignmentStatus, VoterReassignment
from migrator.observe.journal import Journal
from migrator.observe.leaders import whom_to_ask
from migrator.observe.status import Orderer
from migrator.observe.voters import PlanState, ReplicaDescription, VoterOrder, VotersAnswer, VotersDescription
from migrator.raft.planner import Idle, Replica, Target, Wait, described, keys
from migrator.raft.progress import ReplicaStatus
from migrator.raft.voter_changes import VotersNotChangedError
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.control import DynamicVoter, VoterEndpoint
from migrator.records.uuid import ZERO_UUID, Uuid, uuid_to_text

REFRESH_SECONDS = 0.2
JOURNAL_KIND = "voters"


class VoterOrders:
    """Carries out the orders of operators about voters. There is one object per node."""

    def __init__(self, settings: Settings, core: NodeCore, reassignment: VoterReassignment, journal: Journal) -> None:
        self._node_id = settings.node_id
        self._core = core
        self._reassignment = reassignment
        self._journal = journal

    async def reassign(self, order: VoterOrder, voters: str, cluster_id: str, by: Orderer) -> VotersAnswer:
        """See `VoterSource`."""
        if cluster_id not in {"", self._core.cluster_id}:
            raise self._refused(f"this is cluster {self._core.cluster_id}, not {cluster_id}", "Ask the right cluster")
        if order is VoterOrder.UPGRADE:
            return await self._upgrade(by)
        try:
            replicas = () if order is VoterOrder.CANCEL else parse_target(voters)
            answer = await self._core.controller.write(
                Operation.REASSIGN_VOTERS, lambda image, context: self._decide(image, context, order, replicas, by)
            )
        except RefusedError as refusal:
            raise self._refused(str(refusal).rstrip("."), self._remedy()) from refusal
        replaced = "" if answer.replaced is None else target_text(answer.replaced)
        return VotersAnswer(_text_of(answer), replaced, answer.warnings)

    def _decide(
        self, image: MetadataImage, context: Context, order: VoterOrder, replicas: Target, by: Orderer
    ) -> Decision[TargetAnswer]:
        """Decide, and put the order into the journal before it is carried out: its caller may disconnect, or this node
        lose the leadership."""
        decision = set_target(image, self._request(order, replicas), context)
        target = _text_of(decision.response)
        what = f"the voters shall be {target}" if target else "the voters stay what they are"
        self._journal.append(wall_ms(), JOURNAL_KIND, f"the operator has ordered: {what}", **by.details)
        return decision

    def _request(self, order: VoterOrder, replicas: Target) -> TargetRequest:
        """The request for a new target, with the voters that are in force when the order is carried out."""
        voters = self._core.quorum.membership.voters or VoterSet(())
        return TargetRequest(TargetOrder(order.value), replicas, voters, self._live())

    async def _upgrade(self, by: Orderer) -> VotersAnswer:
        """Write the configured voters into the log."""
        addresses, quorum = self._core.addresses, self._core.quorum
        shown = {row.replica_id: row.shown_directory_id for row in quorum.status().voters}
        shown[self._node_id] = addresses.directory_id
        voters = VoterSet.of(
            DynamicVoter(
                voter,
                shown.get(voter, ZERO_UUID),
                (VoterEndpoint(at.listener, at.host, at.port),),
                OWN_KRAFT_VERSIONS,
            )
            for voter, at in addresses.voters().items()
        )
        try:
            await self._core.controller.write(
                Operation.REASSIGN_VOTERS, lambda image, _context: checked_upgrade(image, voters.ids)
            )
            await self._core.voter_changes.upgrade(  # a controller that registers meanwhile may be too old
                voters, lambda: checked_upgrade(self._core.metadata.image, voters.ids)
            )
        except RefusedError as refusal:
            raise self._refused(str(refusal).rstrip("."), self._remedy()) from refusal
        except VotersNotChangedError as refusal:
            raise self._refused(str(refusal).rstrip("."), self._remedy()) from refusal
        what = "the voters are taken from the configuration into the log (kraft.version 1)"
        self._journal.note(wall_ms(), JOURNAL_KIND, f"the operator has ordered: {what}", **by.details)
        return VotersAnswer("", "", ())

    def _refused(self, what: str, remedy: str) -> OperatorError:
        return OperatorError(what, where=f"controller {self._node_id}", remedy=remedy)

    def _remedy(self) -> str:
        if self._core.controller.epoch is not None:
            return ""
        status = self._core.quorum.status()
        return whom_to_ask(status.present_leader_id, is_stock=status.led_by_stock)

    def _live(self) -> frozenset[ReplicaKey]:
        others = {replica.key for replica in self._reassignment.replicas() if replica.is_live}
        return frozenset(others | {ReplicaKey(self._node_id, self._core.addresses.directory_id)})

    async def updates(self) -> AsyncIterator[VotersDescription]:
        """See `VoterSource`."""
        last = None
        while True:
            description = await self.describe()
            if last is None or _without_time(description) != _without_time(last):
                last = description
                yield description
            await asyncio.sleep(REFRESH_SECONDS)

    async def describe(self) -> VotersDescription:
        """See `VoterSource`."""
        quorum = self._core.quorum
        membership, info = quorum.membership, quorum.status()
        plan = await self._reassignment.status()
        wanted = {replica.node_id for replica in plan.target or ()}
        rows = {(row.replica_id, row.directory_id): row for row in (*info.voters, *info.observers)}
        controllers = self._core.metadata.published.cluster.controllers
        voters = membership.voters
        shown = [
            replica
            for replica in plan.replicas
            if replica.key.node_id in wanted
            or replica.key.node_id in controllers
            or (voters is not None and replica.key.node_id in voters.ids)
        ]
        return VotersDescription(
            cluster_id=self._core.cluster_id,
            node_id=self._node_id,
            leader_id=-1 if info.present_leader_id is None else info.present_leader_id,
            leader_epoch=info.epoch,
            high_watermark=info.high_watermark,
            kraft_version=membership.kraft_version,
            voters="" if voters is None else target_text(keys(voters)),
            target="" if plan.target is None else target_text(plan.target),
            state=self._state(plan),
            waiting_for="" if plan.waiting_for is None else plan.waiting_for.reason,
            remedy="" if plan.waiting_for is None else plan.waiting_for.remedy,
            next_steps=tuple(described(step) for step in plan.steps if not isinstance(step, Idle | Wait)),
            replicas=tuple(self._replica(each, rows, wanted, self._core.storage.log.end_offset()) for each in shown),
            stock_leader=info.led_by_stock,
        )

    def _state(self, plan: ReassignmentStatus) -> PlanState:
        if plan.target is None:
            return PlanState.IDLE
        if self._core.controller.epoch is None:
            return PlanState.RESTING
        return PlanState.MOVING if plan.waiting_for is None else PlanState.WAITING

    def _replica(
        self, replica: Replica, rows: Mapping[tuple[int, Uuid], ReplicaStatus], wanted: set[int], leader_end: int
    ) -> ReplicaDescription:
        key, now = replica.key, monotonic_ms()
        row = rows.get((key.node_id, key.directory_id))
        voters = self._core.quorum.membership.voters
        return ReplicaDescription(
            node_id=key.node_id,
            directory_id="" if key.directory_id == ZERO_UUID else uuid_to_text(key.directory_id),
            address=self._address(key.node_id),
            votes=voters is not None and voters.has(key.node_id, key.directory_id),
            shall_vote=key.node_id in wanted,
            log_end_offset=replica.end_offset,
            lag_records=max(0, leader_end - replica.end_offset) if replica.end_offset >= 0 else -1,
            fetched_ms_ago=now - row.heard_ms if row is not None and row.heard_ms >= 0 else -1,
            rounds=0 if row is None else row.rounds,
            last_round_ms=-1 if row is None else row.last_round_ms,
            caught_up=replica.is_caught_up,
        )

    def _address(self, node_id: int) -> str:
        registration = self._core.metadata.published.cluster.controllers.get(node_id)
        listeners = () if registration is None else registration.listeners
        named = (f"{at.host}:{at.port}" for at in listeners if at.name == self._core.addresses.listener)
        at = self._core.addresses.find(node_id)
        return next(named, "" if at is None else f"{at.host}:{at.port}")


def _text_of(answer: TargetAnswer) -> str:
    return "" if answer.target is None else target_text(answer.target)


def _without_time(description: VotersDescription) -> VotersDescription:
    """The description without the times of fetches, to compare two descriptions."""
    rows = tuple(
        replace(row, log_end_offset=0, lag_records=min(row.lag_records, 1), fetched_ms_ago=0, rounds=0, last_round_ms=0)
        for row in description.replicas
    )
    return replace(description, high_watermark=0, replicas=rows)
