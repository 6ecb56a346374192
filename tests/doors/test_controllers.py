"""The doors of running controllers other than Kafka's: every call, by everybody, ends as their tables say."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path

import grpc
import pytest

from migrator.drill.cluster import ControllerProcess
from migrator.observe.metrics_endpoint import METHODS, PATH
from migrator.rpc.operator_client import OperatorClient
from migrator.rpc.operator_socket import SOCKET_DIRECTORY, SOCKET_NAME, SocketDirectory
from tests.doors.support import metrics_door
from tests.doors.support.controllers import BOTH, OPERATOR, Controllers, controllers_in
from tests.doors.support.grpc_door import (
    CALLS,
    NETWORK,
    SERVICES,
    SOCKET,
    Outcome,
    ended,
    in_clear,
    outcomes,
    unexpected,
    visitors,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    with controllers_in(tmp_path_factory.mktemp("doors")) as found:
        yield found


@asynccontextmanager
async def unharmed(cluster: Controllers) -> AsyncIterator[ControllerProcess]:
    """The leader, which leads in the same epoch ever after, while nobody that may not has ordered anything."""
    leader = await cluster.leader()
    before = (await cluster.statuses())[leader.node_id].quorum
    yield leader
    after = (await cluster.statuses())[leader.node_id].quorum
    assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch), cluster.account()


async def orders(controller: ControllerProcess) -> list[tuple[str, str]]:
    """Which orders its journal has, and of whom."""
    async with OperatorClient.on_socket(controller.metadata_directory) as client:
        events = [event async for event in client.journal()]
    return [(event.kind, dict(event.details)["by"]) for event in events if "by" in dict(event.details)]


def test_every_call_of_every_service_is_in_the_tables() -> None:
    assert set(CALLS) == {f"{name}/{call}" for name, found in SERVICES.items() for call in found.methods_by_name}


async def test_every_call_by_everybody_on_the_network(cluster: Controllers) -> None:
    async with unharmed(cluster) as leader:
        before = await orders(leader)
        found = visitors(cluster, leader.node_id)
        assert found.keys() == NETWORK.keys()
        wrong = []
        for who, visitor in found.items():
            async with visitor.channel(leader.properties["migrator.grpc.listener"]) as channel:
                wrong += await unexpected(channel, who, visitor.speaker, NETWORK[who])
        assert wrong == []
        noted = (await orders(leader))[len(before) :]
        assert noted == [("verdict", f"User:CN={OPERATOR}"), ("verdict", f"User:CN={BOTH}")]


NOT_SERVED = (
    "grpc.health.v1.Health/Check",
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "grpc.channelz.v1.Channelz/GetServers",
    "migrator.operator.v1.Operator/pause",
    "migrator.operator.v1.Operator/Pause/",
    "migrator.operator.v1.Operator//Pause",
    "migrator.operator.v1.Operator/%50ause",
)


async def test_nothing_else_is_served_to_anybody(cluster: Controllers) -> None:
    """No reflection, no health, no other spelling of what is."""
    async with unharmed(cluster) as leader:
        for who, visitor in visitors(cluster, leader.node_id).items():
            async with visitor.channel(leader.properties["migrator.grpc.listener"]) as channel:
                codes = {(await ended(channel, call, b""))[0] for call in NOT_SERVED}
            shut = Outcome.SHUT in outcomes(NETWORK[who]).values()
            assert codes == {grpc.StatusCode.UNAVAILABLE if shut else grpc.StatusCode.UNIMPLEMENTED}, who


async def test_every_call_by_the_owner_of_the_socket(cluster: Controllers) -> None:
    async with unharmed(cluster) as leader:
        directory = SocketDirectory(leader.metadata_directory, create=False)
        async with in_clear(directory.address) as channel:
            who = "the controller's own user"
            assert await unexpected(channel, who, 1, SOCKET[who]) == []
        directory.close()


AS_ANOTHER = """
import os, socket, sys
os.chdir(sys.argv[1])  # from here on no parent directory is in the way
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[2])
except PermissionError:
    print("shut")
else:
    print("open")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("who", [who for who in SOCKET if who.startswith("another user")])
async def test_another_user_gets_no_connection(cluster: Controllers, who: str) -> None:
    assert set(outcomes(SOCKET[who]).values()) == {Outcome.SHUT}
    directory = cluster.nodes[0].metadata_directory / SOCKET_DIRECTORY
    await cluster.leader()
    with opened(directory) if "by mistake" in who else nullcontext():
        command = [sys.executable, "-c", AS_ANOTHER, str(directory.parent), f"{SOCKET_DIRECTORY}/{SOCKET_NAME}"]
        found = await asyncio.to_thread(subprocess.check_output, command, text=True)
    assert found.strip() == "shut"


@contextmanager
def opened(directory: Path) -> Iterator[None]:
    directory.chmod(0o755)
    try:
        yield
    finally:
        directory.chmod(0o700)


def test_what_the_metrics_serve_is_in_the_table() -> None:
    served = {request for row in metrics_door.TABLE.values() for request, code in row.items() if code == 200}
    assert served == {f"{method} {PATH}" for method in METHODS} | metrics_door.POLLED
    assert all(row.keys() == set(metrics_door.REQUESTS) for row in metrics_door.TABLE.values())


async def test_every_request_for_metrics_by_everybody(cluster: Controllers) -> None:
    leader = await cluster.leader()
    port = int(leader.properties["migrator.metrics.listener"].rpartition(":")[2])
    found = metrics_door.visitors(cluster.authority)
    assert found.keys() == metrics_door.TABLE.keys()
    assert {
        who: {request: visitor.ask(port, request) for request in metrics_door.REQUESTS}
        for who, visitor in found.items()
    } == metrics_door.TABLE
