"""The leader's word over the Kafka listener (ADR 59): what a false leader says does no harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from migrator.config.load import settings_from
from migrator.log.meta_properties import MetaProperties, write_meta_properties
from migrator.migration.machine.states import State
from migrator.observe.status import Goal
from migrator.records.uuid import Uuid
from migrator.rpc.leader_over_kafka import answering, leaders_gates, leaders_status
from migrator.wire.raft_codec import METADATA_TOPIC
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import build, response_type
from migrator.wire.server import KafkaListener
from tests.rpc.support.operator_node import PlayedNode


class Leader:
    """Answers every question with this, as the leader of this epoch; ``epochs``: one for each partition it names."""

    def __init__(self, says: bytes, *epochs: int) -> None:
        self._says = says
        self._epochs = epochs

    async def handle(self, context: RequestContext, body: Any) -> Any:
        partitions = tuple({"partition_index": 0, "leader_epoch": epoch} for epoch in self._epochs)
        topics = ({"topic_name": METADATA_TOPIC, "partitions": partitions},)
        shape = response_type(context.api_key, context.api_version)
        return build(shape, topics=topics if partitions else (), nodes=(), leader_says=self._says)


async def asked(*leaders: Leader, cluster_id: str = "", directory: Path = Path("/nosuch")) -> tuple[Any, Any]:
    """The status and the gates that come of these, asked beside a metadata directory."""
    listeners = [KafkaListener("CONTROLLER", leader) for leader in leaders]
    try:
        ports = [await each.start("127.0.0.1", 0) for each in listeners]
        settings, _ = settings_from(
            {
                "process.roles": "controller",
                "node.id": "1",
                "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(ports, 1)),
                "controller.listener.names": "CONTROLLER",
                "listeners": f"CONTROLLER://127.0.0.1:{ports[0]}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
                "log.dirs": str(directory),
            },
            "test",
        )
        return await leaders_status(settings, cluster_id), await leaders_gates(settings, Goal.FINISH)
    finally:
        for listener in listeners:
            await listener.close(grace=0.0)


@pytest.mark.parametrize(
    "false", [Leader(b"\x08"), Leader(b"\x08", 9), Leader(b"\x08", 9, 9)], ids=["of none", "garbled", "of two"]
)
async def test_a_false_leader_neither_ends_the_command_nor_hides_the_true_one(false: Leader) -> None:
    node = PlayedNode(State.DUAL_WRITING)
    true = Leader(await answering(node)("status"), 7)
    assert await asked(false) == (None, None)
    status, _ = await asked(false, true)
    assert status == node.status()


@pytest.mark.parametrize(("question", "at"), [("status", 0), ("gates finish", 1)])
async def test_the_leader_of_another_cluster_is_none_of_ours(question: str, at: int, tmp_path: Path) -> None:
    """A host may have been given to another cluster since. The controller's own disk says which cluster is meant."""
    node = PlayedNode(State.DUAL_WRITING)
    stranger = Leader(await answering(node)(question), 9)
    answers = {}
    for cluster_id in (node.status().cluster_id, "another"):
        write_meta_properties(tmp_path, MetaProperties(cluster_id, 1, Uuid(b"d" * 16)))
        answers[cluster_id] = (await asked(stranger, directory=tmp_path))[at]
    assert [answer is None for answer in answers.values()] == [False, True]
    assert (await asked(stranger))[at] == answers[node.status().cluster_id]


async def test_a_cluster_that_is_named_counts_before_the_disk() -> None:
    node = PlayedNode(State.DUAL_WRITING)
    stranger = Leader(await answering(node)("status"), 9)
    assert (await asked(stranger, cluster_id="another"))[0] is None
    assert (await asked(stranger, cluster_id=node.status().cluster_id))[0] == node.status()
