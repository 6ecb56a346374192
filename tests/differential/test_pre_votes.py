"""Pre-votes over Kafka's protocol (Vote 2, KIP-996): a leader of Kafka 4.1.1 and ours answer alike and go on."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.drill.cluster import CLUSTER_ID, ControllerProcess
from migrator.parts.kafka import KafkaRelease, StockKafka
from migrator.parts.processes import free_port
from migrator.raft.transport import TransportError
from migrator.wire.client import KafkaClient
from migrator.wire.raft_codec import METADATA_TOPIC
from migrator.wire.schemas import DESCRIBE_QUORUM, VOTE, build, request_type
from tests.differential.test_voter_changes import ANSWER_SECONDS, LEADER, properties
from tests.interop.support.changing_voters import LOOK_SECONDS
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.lane("test-long")

STRANGER = uuid.UUID(int=77 << 64)
KINDS = ("of its epoch", "of a lower epoch", "with a shorter log")


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """A stock 4.1.1 leader and ours, each the only voter of its quorum."""
    kafka, ports = KafkaRelease("4.1.1").fetch(), {"stock": free_port(), "ours": free_port()}
    folder = tmp_path_factory.mktemp("pre-votes")
    stock = kafka.node("stock", folder / "stock", properties(LEADER, ports["stock"], ports["stock"]))
    ours = ControllerProcess(LEADER, folder / "ours", properties(LEADER, ports["ours"], ports["ours"]))
    try:
        format_standalone(kafka, stock.write_properties())
        ours.write_properties()
        format_standalone(KafkaRelease("3.9.1").fetch(), ours.property_file)
        stock.launch()
        ours.start()
        yield ports
    finally:
        stock.kill()
        ours.kill()


def format_standalone(kafka: StockKafka, file: Path) -> None:
    tool = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file), "--standalone")
    kafka.tool(*tool, directory=file.parent)


async def ask(port: int, request: Any) -> Any:
    client = KafkaClient("127.0.0.1", port, "differential")
    try:
        return await client.request(request, ANSWER_SECONDS)
    finally:
        await client.close()


async def leading(port: int) -> Any:
    """The leader's description of its quorum, once it has committed something."""
    topics = ({"topic_name": METADATA_TOPIC, "partitions": ({"partition_index": 0},)},)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with contextlib.suppress(TransportError):
                answer = await ask(port, build(request_type(DESCRIBE_QUORUM, 2), topics=topics))
                found = answer.topics[0].partitions[0] if answer.topics else None
                if found is not None and found.leader_id == LEADER and found.high_watermark > 0:
                    return found
            await asyncio.sleep(LOOK_SECONDS)


async def asked(port: int, *, more_epochs: int = 0, log_end: int | None = None) -> tuple[Any, ...]:
    """Error, grant, leader, and how much later its epoch is in the answer, and once it leads again."""
    before = await leading(port)
    row = {
        "partition_index": 0,
        "candidate_epoch": before.leader_epoch + more_epochs,
        "candidate_id": 9,
        "candidate_directory_id": STRANGER,
        "voter_directory_id": before.current_voters[0].replica_directory_id,
        "last_offset_epoch": before.leader_epoch,
        "last_offset": before.high_watermark + 1000 if log_end is None else log_end,
        "pre_vote": True,
    }
    topics = ({"topic_name": METADATA_TOPIC, "partitions": (row,)},)
    request = build(request_type(VOTE, 2), cluster_id=CLUSTER_ID, voter_id=LEADER, topics=topics)
    answer = (await ask(port, request)).topics[0].partitions[0]
    after = await leading(port)
    epochs = answer.leader_epoch - before.leader_epoch, after.leader_epoch - before.leader_epoch
    return answer.error_code, answer.vote_granted, answer.leader_id, *epochs


@pytest.mark.parametrize("how", [{}, {"more_epochs": -1}, {"log_end": 0}], ids=KINDS)
async def test_a_leader_gives_none_and_goes_on(ports: dict[str, int], how: dict[str, int]) -> None:
    assert await asked(ports["ours"], **how) == await asked(ports["stock"], **how)


async def test_a_stranger_in_a_higher_epoch_unseats_the_stock_leader_and_not_ours(ports: dict[str, int]) -> None:
    """Kafka takes over any higher epoch, also that of a pre-vote; ours knows who votes, and asks nobody else."""
    assert (await asked(ports["stock"], more_epochs=1))[-1] > 0
    assert await asked(ports["ours"], more_epochs=1) == (ErrorCode.none, False, LEADER, 0, 0)
