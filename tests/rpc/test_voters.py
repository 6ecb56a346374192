"""The operator's calls about the voters, from end to end."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from migrator.errors import OperatorError
from migrator.observe.status import Orderer
from migrator.observe.voters import PlanState, ReplicaDescription, VoterOrder, VotersAnswer, VotersDescription
from migrator.rpc.identity import SOCKET, local_user
from migrator.rpc.operator_client import OperatorClient
from migrator.rpc.server import GrpcServer
from migrator.rpc.stubs import voters_pb2
from migrator.rpc.voters_service import VotersService

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


class Node:
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


async def test_orders_and_descriptions_over_the_unix_socket(tmp_path: Path) -> None:
    node = Node()
    server = GrpcServer([VotersService(node)])
    server.listen_unix(tmp_path)
    await server.start()
    try:
        async with OperatorClient.on_socket(tmp_path) as client:
            assert await client.voters() == DESCRIPTION
            assert [found.leader_epoch async for found in client.watch_voters()] == [7, 8]
            for order in VoterOrder:
                answer = await client.reassign(order, "4,5,6", "cluster")
                assert answer == VotersAnswer("4,5,6", "1,2,5", ("Use an odd number.",))
            with pytest.raises(OperatorError, match="Name controllers"):
                await client.reassign(VoterOrder.TO)
            with pytest.raises(grpc.aio.AioRpcError, match="number 99"):
                await client._voters.Reassign(voters_pb2.ReassignRequest(order=99))  # type: ignore[arg-type]
    finally:
        await server.close(grace=0)
    me = Orderer(local_user(os.geteuid()), SOCKET)
    assert node.orders == [(order, "4,5,6", "cluster", me) for order in VoterOrder]
