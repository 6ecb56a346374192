"""Controllers that find each other, as processes: the bootstrapping example of KIP-642, and one that has moved."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from migrator.config.endpoints import parse_host_port
from migrator.config.load import load_settings
from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR, ControllerProcess
from migrator.node.quorum.transports import grpc_tls
from migrator.parts.processes import ChildProcess, free_port, run_to_end
from migrator.raft.transport import TransportError
from migrator.rpc.quorum_service import NodeAddress
from migrator.rpc.raft_transport import GrpcRaftTransport, PeerAddress
from tests.interop.support.changing_voters import LOOK_SECONDS, REQUEST_SECONDS, ChangingVoters
from tests.patience import PATIENCE_SECONDS

GRPC_PLACES, GRPC_LISTENER = "migrator.grpc.voters", "migrator.grpc.listener"
SERVERS = "controller.quorum.bootstrap.servers"


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[ChangingVoters]:
    """Three controllers with gRPC, not formatted yet."""
    found = ChangingVoters(tmp_path, size=3, voters=3)
    yield found
    found.close()


def ids(rows: Any) -> set[int]:
    return {row.replica_id for row in rows}


def described(controller: ControllerProcess) -> dict[str, Any]:
    """The output of `migrator quorum describe` on that controller's machine."""
    command = [MIGRATOR, "quorum", "describe", "-c", str(controller.property_file), "--json"]
    found: dict[str, Any] = json.loads(run_to_end("quorum", command, timeout_seconds=COMMAND_SECONDS))
    return found


async def told_by(asked: ControllerProcess) -> Mapping[int, NodeAddress]:
    """The gRPC addresses that a controller tells, its own included; none while it does not answer."""
    settings = load_settings(asked.property_file)[0]
    at = PeerAddress(settings.migrator_grpc_listener or "", frozenset({f"User:CN=controller-{asked.node_id}"}))
    transport = GrpcRaftTransport(CLUSTER_ID, lambda _: at, grpc_tls(settings))
    try:
        return {word.node_id: word for word in await transport.discover(asked.node_id, (), REQUEST_SECONDS)}
    except TransportError:
        return {}
    finally:
        await transport.close()


async def until_told(asked: ControllerProcess, condition: Callable[[Mapping[int, NodeAddress]], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition(await told_by(asked)):
            await asyncio.sleep(LOOK_SECONDS)


def grpc_place(controller: ControllerProcess) -> tuple[str, int]:
    return parse_host_port(controller.properties[GRPC_LISTENER])


def places(words: Mapping[int, NodeAddress]) -> dict[int, tuple[str, int]]:
    return {node: (word.host, word.port) for node, word in words.items()}


async def test_the_bootstrapping_example_of_kip_642(quorum: ChangingVoters) -> None:
    """Start one, look, start others, and grow. The files of all three name controller 1 alone."""
    first, *others = quorum.controllers.values()
    name_only(quorum, first)
    await asyncio.to_thread(quorum.format_first, 1, ["--standalone"])
    command = [MIGRATOR, "controller", "-c", str(first.property_file), "--bootstrap"]
    first.process = ChildProcess("controller 1", command, output=first.directory / "controller.log")
    assert ids((await quorum.until(lambda found: found.high_watermark > 0)).current_voters) == {1}
    looked = await asyncio.to_thread(described, first)
    assert (looked["leader_id"], looked["voters"].partition("@")[0], looked["target"]) == (1, "1", "")

    for other in others:
        await asyncio.to_thread(quorum.format_first, other.node_id, ["--no-initial-controllers"])
        other.start()
    await quorum.until_caught_up()
    looked = await asyncio.to_thread(described, first)
    assert {row["node_id"]: row["votes"] for row in looked["replicas"]} == {1: True, 2: False, 3: False}

    assert "the voters are 1,2,3" in await quorum.order("reassign", "--to", "1,2,3", "--wait")
    assert ids((await quorum.until(lambda _: True)).current_voters) == {1, 2, 3}
    everywhere = {node: grpc_place(controller) for node, controller in quorum.controllers.items()}
    for controller in quorum.controllers.values():
        await until_told(controller, lambda words: places(words) == everywhere)

    assert await asyncio.to_thread(first.stop) == 0
    before = (await quorum.until(lambda found: found.leader_id in {2, 3})).high_watermark
    await quorum.until(lambda found: found.high_watermark > before)


def name_only(quorum: ChangingVoters, first: ControllerProcess) -> None:
    """Every file says where the first controller is, and of the others nothing but who they are."""
    host, port = grpc_place(first)
    for controller in quorum.controllers.values():
        controller.properties[GRPC_PLACES] = f"{first.node_id}@{host}:{port}"
        controller.properties[SERVERS] = f"127.0.0.1:{quorum.ports[first.node_id]}"
        controller.properties["migrator.quorum.require.bootstrap"] = "true"
        controller.write_properties()


async def test_a_controller_that_moves_while_its_leader_restarts_is_found_again(quorum: ChangingVoters) -> None:
    """The files of the two others go on to name its old addresses, and at last only one of them is left beside it."""
    await asyncio.to_thread(quorum.format_and_start)
    await quorum.until_caught_up()
    leading = quorum.controllers[(await quorum.until(lambda _: True)).leader_id]
    moving, third = (controller for controller in quorum.controllers.values() if controller is not leading)
    for controller in (moving, leading):
        await asyncio.to_thread(controller.kill)
    move(quorum, moving)
    for controller in (moving, leading):
        controller.start()

    now = grpc_place(moving)
    for controller in (leading, third):
        assert f"{moving.node_id}@{now[0]}:{now[1]}" not in controller.properties[GRPC_PLACES]
        await until_told(controller, lambda words: places(words).get(moving.node_id) == now)
    await until_the_log_says_where(quorum, moving)
    await asyncio.to_thread(third.kill)
    left = {leading.node_id, moving.node_id}
    before = (await quorum.until(lambda found: found.leader_id in left)).high_watermark
    await quorum.until(lambda found: found.leader_id in left and found.high_watermark > before)


def move(quorum: ChangingVoters, controller: ControllerProcess) -> None:
    """Both its listeners; its own file says so."""
    port, grpc_port = quorum.ports[controller.node_id], grpc_place(controller)[1]
    quorum.ports[controller.node_id], moved = free_port(), free_port()
    controller.properties["listeners"] = f"CONTROLLER://127.0.0.1:{quorum.ports[controller.node_id]}"
    controller.properties[GRPC_LISTENER] = f"127.0.0.1:{moved}"
    for key, old, new in ((GRPC_PLACES, grpc_port, moved), (SERVERS, port, quorum.ports[controller.node_id])):
        controller.properties[key] = controller.properties[key].replace(f":{old}", f":{new}")


async def until_the_log_says_where(quorum: ChangingVoters, controller: ControllerProcess) -> None:
    """Once the voters in the log have a controller's new address (UpdateRaftVoter)."""
    address = f"127.0.0.1:{quorum.ports[controller.node_id]}"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            leader = quorum.controllers[(await quorum.until(lambda _: True)).leader_id]
            looked = await asyncio.to_thread(described, leader)
            rows = {row["node_id"]: row["address"] for row in looked["replicas"]}
            if rows.get(controller.node_id) == address:
                return
            await asyncio.sleep(LOOK_SECONDS)
