"""The operator's calls about the voters, from end to end."""

from __future__ import annotations

import os
from pathlib import Path

import grpc
import pytest

from migrator.errors import OperatorError
from migrator.observe.status import Orderer
from migrator.observe.voters import VoterOrder, VotersAnswer
from migrator.rpc.identity import SOCKET, local_user
from migrator.rpc.operator_client import OperatorClient
from migrator.rpc.operator_service import VotersService
from migrator.rpc.server import GrpcServer
from migrator.rpc.stubs import voters_pb2
from tests.rpc.support.voters import DESCRIPTION, VotersOfTest


async def test_orders_and_descriptions_over_the_unix_socket(tmp_path: Path) -> None:
    node = VotersOfTest()
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
