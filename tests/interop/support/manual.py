"""A cluster with the property files of Kafka 3.9's manual, and Kafka's own command for its voters.

Only addresses and directories are changed in the manual's text.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, ENCODER_SECRET, MIGRATOR, ControllerProcess
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.errors import OperatorError
from migrator.log.meta_properties import read_meta_properties
from migrator.observe.voters import VoterOrder
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import run_to_end
from migrator.raft.voter_set import ReplicaKey
from migrator.records.uuid import uuid_to_text
from migrator.rpc.operator_client import OperatorClient
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import build, request_type
from tests.interop.support.cluster import KafkaCluster
from tests.patience import PATIENCE_SECONDS

TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
ALTER_PARTITION_REASSIGNMENTS = (45, 0)
TOPIC = "__cluster_metadata"
REQUEST_SECONDS = 30.0
KEPT = ("log.dirs", "authorizer.class.name", "super.users", "delegation.token.secret.key")
"""The "Other configs" of the manual."""


class ManualCluster(KafkaCluster):
    """Three controllers and two brokers, which find the controllers by ``controller.quorum.bootstrap.servers``."""

    def __init__(self, kafka: StockKafka, directory: Path, zookeeper: str) -> None:
        super().__init__(kafka, directory, controllers=3, brokers=2, zookeeper=zookeeper)
        self._servers = ",".join(f"localhost:{port}" for _, port in self.controller_addresses)
        for controller, (_, port) in zip(self.controllers, self.controller_addresses, strict=True):
            controller.properties = {
                **{key: controller.properties[key] for key in KEPT},
                "process.roles": "controller",
                "node.id": str(controller.node_id),
                "controller.quorum.bootstrap.servers": self._servers,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"CONTROLLER://:{port}",
                "zookeeper.metadata.migration.enable": "true",
                "zookeeper.connect": zookeeper,
                "inter.broker.listener.name": "PLAINTEXT",
                "password.encoder.secret": ENCODER_SECRET,
            }

    def properties_of(self, broker: int, mode: KafkaBrokerMode) -> dict[str, str]:
        """See its base; controllers are named by their addresses alone."""
        properties = super().properties_of(broker, mode)
        if properties.pop("controller.quorum.voters", None) is not None:
            properties["controller.quorum.bootstrap.servers"] = self._servers
        return properties

    def start_controller(self, controller: ControllerProcess, how: str) -> None:
        """Format a controller as the manual says, and start it; returns when it answers and somebody leads."""
        controller.write_properties()
        command = [MIGRATOR, "format", "-c", str(controller.property_file), "-t", CLUSTER_ID, how]
        run_to_end("format", command, timeout_seconds=COMMAND_SECONDS)
        controller.start()
        until(f"controller {controller.node_id} is there", partial(self._is_back, controller.node_id))

    def quorum(self, *arguments: str) -> str:
        """``kafka-metadata-quorum`` with the leader; what it says."""
        _, port = self._address_of(self.leading())
        at = ("--bootstrap-controller", f"localhost:{port}")
        return self.kafka.tool(TOOL, *at, *arguments, directory=self.directory)

    def add(self, controller: ControllerProcess) -> str:
        """``add-controller``, once it has caught up, as the manual says; the command's words."""
        until("it has caught up", lambda: self._has_caught_up(controller.node_id))
        return self.quorum("--command-config", str(controller.property_file), "add-controller")

    def remove(self, controller: ControllerProcess) -> str:
        """``remove-controller``; the command's words."""
        key = key_of(controller)
        directory = uuid_to_text(key.directory_id)
        return self.quorum(
            "remove-controller", "--controller-id", str(key.node_id), "--controller-directory-id", directory
        )

    def voters(self) -> dict[int, list[str]]:
        """Endpoints by id, as ``describe --status`` lists them."""
        said = self.quorum("describe", "--status")
        found = re.search(r"^CurrentVoters:\s+(\[.*\])$", said, re.MULTILINE)
        assert found, said
        return {voter["id"]: voter["endpoints"] for voter in json.loads(found[1])}

    def ordered(self, *words: str) -> str:
        """`migrator quorum` on the leader's machine; what it says, also when it is refused."""
        command = [MIGRATOR, "quorum", *words, "-c", str(self.leading().property_file)]
        try:
            return run_to_end("quorum", command, timeout_seconds=COMMAND_SECONDS)
        except OperatorError as refused:
            return str(refused)

    def rolled_back(self) -> str:
        """`migrator rollback` with all logs, on the last controller's machine; what it says, also when refused."""
        *others, last = self.controllers
        logs = [part for each in others for part in ("--log", str(each.metadata_directory))]
        command = [MIGRATOR, "rollback", "-c", str(last.property_file), *logs, "--yes"]
        try:
            return run_to_end("rollback", command, timeout_seconds=COMMAND_SECONDS)
        except OperatorError as refused:
            return str(refused)

    def asked_by_grpc(self, order: VoterOrder, voters: str) -> str:
        """The refusal of an order that comes by gRPC; empty if it was taken."""

        directory = self.leading().metadata_directory

        async def ask() -> str:
            async with OperatorClient.on_socket(directory) as client:
                try:
                    await client.reassign(order, voters, CLUSTER_ID, PATIENCE_SECONDS)
                except OperatorError as refused:
                    return str(refused)
                return ""

        return asyncio.run(ask())

    def asked_by_admin_client(self, *voters: int) -> tuple[ErrorCode, str]:
        """The answer to AlterPartitionReassignments of the metadata partition."""
        topics = ({"name": TOPIC, "partitions": ({"partition_index": 0, "replicas": voters},)},)
        request = build(request_type(*ALTER_PARTITION_REASSIGNMENTS), timeout=dt.timedelta(seconds=5), topics=topics)
        at = self._address_of(self.leading())

        async def ask() -> Any:
            client = KafkaClient(*at, "test")
            try:
                return await client.request(request, REQUEST_SECONDS)
            finally:
                await client.close()

        answer = asyncio.run(ask()).responses[0].partitions[0]
        return answer.error_code, answer.error_message or ""

    def _has_caught_up(self, node_id: int) -> bool:
        rows = [line.split() for line in self.quorum("describe", "--replication").splitlines()[1:] if line.strip()]
        lags = {int(row[0]): int(row[3]) for row in rows}
        return lags.get(node_id) == 0

    def _address_of(self, controller: ControllerProcess) -> tuple[str, int]:
        return self.controller_addresses[self.controllers.index(controller)]


def key_of(controller: ControllerProcess) -> ReplicaKey:
    """Its id and the id of its disk."""
    identity = read_meta_properties(controller.metadata_directory)
    assert identity is not None
    assert identity.directory_id is not None
    return ReplicaKey(controller.node_id, identity.directory_id)
