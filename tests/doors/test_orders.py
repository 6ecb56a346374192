"""The journal of the controller that took an order has the person and the address, by each road."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from migrator.drill.cluster import ControllerProcess, speak_grpc
from migrator.errors import OperatorError
from migrator.migration.machine.states import State
from migrator.observe.journal import FILE_NAME
from migrator.observe.status import Force, VerdictReport
from migrator.parts.certificates import Authority
from migrator.rpc.identity import local_user
from migrator.rpc.operator_client import OperatorClient
from migrator.rpc.tls import TlsFiles
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import cluster_in, start_all

ALICE = "User:CN=alice"
VERDICT = VerdictReport("another-cluster", 1, 1, 1, 1, equal=True, differences=0)
Connect = Callable[[], OperatorClient]


def noted(controller: ControllerProcess) -> list[tuple[str, str, str, str]]:
    """Kind, text, who and from where of each order, as the file has them."""
    lines = (controller.metadata_directory / FILE_NAME).read_bytes().splitlines()
    events = [orjson.loads(line) for line in lines]
    return [
        (event["kind"], event["text"], event["details"]["by"], event["details"]["address"])
        for event in events
        if "by" in event["details"] and event["kind"] != "settings"
    ]


def operator(controller: ControllerProcess, authority: Authority, directory: Path, name: str) -> Connect:
    """A caller with that certificate, on the network."""
    files = TlsFiles(*authority.files(directory / name, name))
    expected = frozenset({f"User:CN=controller-{controller.node_id}"})
    return lambda: OperatorClient.at(controller.properties["migrator.grpc.listener"], files, expected)


async def test_each_order_names_who_gave_it_and_from_where(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    authority = Authority("orders")
    async with cluster_in(
        tmp_path, zookeeper.hosts, controllers=1, brokers=1, partitions=5, migrator_grpc_operator_principals=ALICE
    ) as cluster:
        (controller,) = cluster.controllers
        speak_grpc(cluster.controllers, authority)
        await cluster.brokers[0].stop(controlled=False)
        start_all(cluster)
        await cluster.until_state(State.WAITING_FOR_BROKERS)
        roads: dict[str, Connect] = {
            "over gRPC": operator(controller, authority, tmp_path, "alice"),
            "through the socket": lambda: OperatorClient.on_socket(controller.metadata_directory),
        }
        for road, connect in roads.items():
            async with connect() as client:
                await client.pause(f"held {road}")
                await client.resume()
        mallory = operator(controller, authority, tmp_path, "mallory")
        async with mallory() as client:
            for order in (client.pause("by mallory"), client.resume(), client.force(Force.RECONCILE, "by mallory")):
                with pytest.raises(OperatorError, match="'User:CN=mallory' may not call"):
                    await order
        await cluster.brokers[0].start()
        for road, connect in roads.items():
            await cluster.until_dual_writing()
            async with connect() as client:
                await client.force(Force.RECONCILE, f"forced {road}")
                assert not (await client.report_verdict(VERDICT)).counts
        found = noted(controller)
        assert await cluster.in_state(*State)

    own = local_user(controller.metadata_directory.stat().st_uid)
    remote, local = (ALICE, "ipv4:127.0.0.1:PORT"), (own, "the operator's socket")
    resumed, verdict = "the operator has resumed the migration", found[5][1]
    assert [(*order[:3], re.sub(r"\d+$", "PORT", order[3])) for order in found] == [
        ("pause", "held over gRPC", *remote),
        ("resume", resumed, *remote),
        ("pause", "held through the socket", *local),
        ("resume", resumed, *local),
        ("force", "forced over gRPC", *remote),
        ("verdict", verdict, *remote),
        ("force", "forced through the socket", *local),
        ("verdict", verdict, *local),
    ]
    assert "cluster" in verdict
