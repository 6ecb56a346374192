"""A model of a node's voters: it notes the orders, and describes the same voters each time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from migrator.errors import OperatorError
from migrator.observe.status import Orderer
from migrator.observe.voters import PlanState, ReplicaDescription, VoterOrder, VotersAnswer, VotersDescription

ROW = ReplicaDescription(4, "AQEAAAAAAAAAAAAAAAAABA", "host:9093", True, True, 1 << 40, 7, 20, 3, 450, False)
DESCRIPTION = VotersDescription(
    cluster_id="cluster",
    node_id=1,
    leader_id=1,
    leader_epoch=7,
    high_watermark=1 << 40,
    kraft_version=1,
    voters="1,2,3",
    target="4,5,6",
    state=PlanState.WAITING,
    waiting_for="Controller 4 does not fetch from this leader.",
    remedy="Start it.",
    next_steps=("add controller 4", "remove controller 2"),
    replicas=(ROW, replace(ROW, node_id=5, fetched_ms_ago=-1)),
)


class VotersOfTest:
    """Takes every order but an empty one."""

    def __init__(self) -> None:
        self.orders: list[tuple[VoterOrder, str, str, Orderer]] = []

    async def describe(self) -> VotersDescription:
        return DESCRIPTION

    async def updates(self) -> AsyncIterator[VotersDescription]:
        for epoch in (7, 8):
            yield replace(DESCRIPTION, leader_epoch=epoch)

    async def reassign(self, order: VoterOrder, voters: str, cluster_id: str, by: Orderer) -> VotersAnswer:
        if order is VoterOrder.TO and not voters:
            raise OperatorError("the target is empty", remedy="Name controllers")
        self.orders.append((order, voters, cluster_id, by))
        return VotersAnswer(voters, "1,2,5", ("Use an odd number.",))
