"""AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter: a stock leader and ours, each of a quorum formatted standalone.

Every check in its order: a request that fails at one check passes all those before. The node that joins and leaves is
one of our controllers on both sides; it was formatted by stock Kafka, as the leaders were.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.drill.cluster import CLUSTER_ID, ControllerProcess
from migrator.log.meta_properties import read_meta_properties
from migrator.parts.kafka import StockKafka, StockNode
from migrator.parts.processes import free_port
from migrator.raft.transport import TransportError
from migrator.records.uuid import Uuid, uuid_to_text
from migrator.wire.api_versions import Features
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import DESCRIBE_QUORUM, build, request_type
from migrator.wire.server import KafkaListener
from tests.differential.support.differences import in_common
from tests.patience import PATIENCE_SECONDS

ADD, REMOVE, UPDATE = 80, 81, 82
LEADER, JOINER, NOBODY, OLD, STRANGER = 1, 2, 9, 8, 7
NO_DISK = uuid.UUID(int=77 << 64)
REQUEST_MS = 1000
ANSWER_SECONDS = 30.0
EACH_KEY = {
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
    "controller.quorum.request.timeout.ms": str(REQUEST_MS),
}

Change = tuple[int, dict[str, Any]]
Answer = tuple[ErrorCode, str]


def properties(node_id: int, port: int, bootstrap: int) -> dict[str, str]:
    return {
        **EACH_KEY,
        "node.id": str(node_id),
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{bootstrap}",
    }


class Nobody:
    """Answers nothing but ApiVersions, which the listener does by itself."""

    async def handle(self, context: Any, body: Any) -> Any:
        raise NotImplementedError


class Quorum:
    """A leader of its own, and one of our controllers that observes it.

    :param of_leader: more keys of the leader.
    """

    def __init__(self, kafka: StockKafka, directory: Path, *, is_stock: bool, **of_leader: str) -> None:
        self._kafka = kafka
        self.ports = {LEADER: free_port(), JOINER: free_port()}
        self.joiner = ControllerProcess(
            JOINER, directory / "joiner", properties(JOINER, self.ports[JOINER], self.ports[LEADER])
        )
        own = properties(LEADER, self.ports[LEADER], self.ports[LEADER]) | of_leader
        self.leader: StockNode | ControllerProcess
        if is_stock:
            self.leader = kafka.node("stock", directory / "leader", own)
        else:
            self.leader = ControllerProcess(LEADER, directory / "leader", own)
        self.directories: dict[int, uuid.UUID] = {}

    def start(self) -> None:
        self._start(LEADER, self.leader, "--standalone")
        self._start(JOINER, self.joiner, "--no-initial-controllers")

    def _start(self, node_id: int, node: StockNode | ControllerProcess, option: str) -> None:
        if isinstance(node, StockNode):
            file = node.write_properties()
        else:
            node.write_properties()
            file = node.property_file
        tool = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file), option)
        self._kafka.tool(*tool, directory=file.parent)
        if isinstance(node, StockNode):
            data = Path(node.properties["log.dirs"])
            node.launch()
        else:
            data = node.metadata_directory
            node.start()
        found = read_meta_properties(data)
        assert found is not None
        assert found.directory_id is not None
        self.directories[node_id] = uuid.UUID(bytes=found.directory_id)

    def stop(self) -> None:
        self.joiner.kill()
        self.leader.kill()

    async def ask(self, key: int, fields: dict[str, Any], at: int = LEADER, version: int = 0) -> Any:
        client = KafkaClient("127.0.0.1", self.ports[at], "differential")
        try:
            return await client.request(build(request_type(key, version), **fields), ANSWER_SECONDS)
        finally:
            await client.close()

    async def change(self, change: Change, at: int = LEADER) -> Answer:
        """The error, and the text that comes with it: none from an UpdateRaftVoter, which has no field for it."""
        answer = await self.ask(*change, at)
        code: ErrorCode = answer.error_code
        failed = code is not ErrorCode.none  # a stock leader says NONE in words, too
        return code, self._plain(getattr(answer, "error_message", None) or "") if failed else ""

    def _plain(self, text: str) -> str:
        """Without what each quorum has of its own."""
        for node_id, directory in self.directories.items():
            text = text.replace(uuid_to_text(Uuid(directory.bytes)), f"disk of {node_id}")
        for node_id, port in self.ports.items():
            text = re.sub(rf"\b{port}\b", f"port of {node_id}", text)
        return text

    async def described(self) -> Any:
        """The partition as whoever leads describes it; None while nobody does."""
        topics = ({"topic_name": "__cluster_metadata", "partitions": ({"partition_index": 0},)},)
        for node_id in self.ports:
            try:
                answer = await self.ask(DESCRIBE_QUORUM, {"topics": topics}, node_id, 2)
            except TransportError:
                continue
            if answer.topics[0].partitions[0].error_code is ErrorCode.none:
                return answer
        return None

    async def until(self, condition: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                answer = await self.described()
                if answer is not None and condition(answer.topics[0].partitions[0]):
                    return answer
                await asyncio.sleep(0.1)

    async def observer_has_caught_up(self) -> None:
        await self.until(
            lambda found: any(
                row.replica_id == JOINER and found.high_watermark > 0 and row.log_end_offset >= found.high_watermark
                for row in found.observers
            )
        )

    # What is asked for

    def _key(self, voter_id: int, directory: uuid.UUID | None) -> dict[str, Any]:
        return {"cluster_id": CLUSTER_ID, "voter_id": voter_id, "voter_directory_id": directory}

    def add(self, voter_id: int, directory: uuid.UUID | None, port: int, **fields: Any) -> Change:
        return ADD, self._key(voter_id, directory) | {"timeout": REQUEST, "listeners": at(port)} | fields

    def remove(self, voter_id: int, directory: uuid.UUID | None, **fields: Any) -> Change:
        return REMOVE, self._key(voter_id, directory) | fields

    def update(self, epoch: int, voter_id: int, directory: uuid.UUID | None, port: int, **fields: Any) -> Change:
        versions = {"min_supported_version": 0, "max_supported_version": 1}
        own = {"current_leader_epoch": epoch, "listeners": at(port), "k_raft_version_feature": versions}
        return UPDATE, self._key(voter_id, directory) | own | fields


REQUEST = dt.timedelta(milliseconds=REQUEST_MS)


def at(port: int, name: str = "CONTROLLER") -> tuple[dict[str, Any], ...]:
    return ({"name": name, "host": "127.0.0.1", "port": port},)


async def play(quorum: Quorum) -> list[tuple[str, Answer]]:
    answers: list[tuple[str, Answer]] = []

    async def ask(what: str, change: Change, node: int = LEADER) -> None:
        answers.append((what, await quorum.change(change, node)))

    await quorum.observer_has_caught_up()
    found = await quorum.until(lambda _: True)
    epoch = found.topics[0].partitions[0].leader_epoch
    ports, disks = quorum.ports, quorum.directories
    own, joiner = (LEADER, disks[LEADER]), (JOINER, disks[JOINER])

    await ask("add, other cluster", quorum.add(-1, None, ports[JOINER], cluster_id="other"))
    await ask("remove, other cluster", quorum.remove(-1, None, cluster_id="other"))
    await ask("update, other cluster", quorum.update(epoch - 1, -1, None, 1, cluster_id="other"))
    await ask("update, epoch that is over", quorum.update(epoch - 1, -1, None, 1))
    await ask("update, epoch to come", quorum.update(epoch + 1, -1, None, 1))
    await ask("add at an observer", quorum.add(-1, None, 1), JOINER)
    await ask("remove at an observer", quorum.remove(-1, None), JOINER)
    await ask("update at an observer", quorum.update(epoch, -1, None, 1), JOINER)
    await ask("add, no disk", quorum.add(JOINER, None, ports[JOINER]))
    await ask("add, no id", quorum.add(-1, disks[JOINER], ports[JOINER]))
    await ask("remove, no disk", quorum.remove(JOINER, None))
    await ask("update, no disk", quorum.update(epoch, LEADER, None, ports[LEADER]))
    await ask("add, no listener", quorum.add(*joiner, 1, listeners=()))
    await ask("add, another listener", quorum.add(*joiner, 1, listeners=at(ports[JOINER], "OTHER")))
    await ask("update, another listener", quorum.update(epoch, *own, 1, listeners=at(ports[LEADER], "OTHER")))
    for low, high in ((1, 0), (-1, 1), (0, 0), (2, 3)):
        span = {"min_supported_version": low, "max_supported_version": high}
        await ask(
            f"update, range {low} to {high}",
            quorum.update(epoch, *own, ports[LEADER], k_raft_version_feature=span),
        )
    await ask("update, other disk", quorum.update(epoch, LEADER, NO_DISK, ports[LEADER]))
    await ask("update, no voter", quorum.update(epoch, *joiner, ports[JOINER]))
    await ask("add a voter", quorum.add(*own, ports[LEADER]))
    await ask("add a voter's id with another disk", quorum.add(LEADER, NO_DISK, ports[LEADER]))
    await ask("remove the only voter", quorum.remove(*own))
    await ask("remove a voter's id with another disk", quorum.remove(LEADER, NO_DISK))
    await ask("remove nobody", quorum.remove(NOBODY, NO_DISK))
    await ask("add who listens nowhere", quorum.add(NOBODY, NO_DISK, free_port()))
    await ask("add who has not fetched", quorum.add(STRANGER, NO_DISK, ports[JOINER]))
    await ask("add another disk of an observer", quorum.add(JOINER, NO_DISK, ports[JOINER]))
    listener = KafkaListener("CONTROLLER", Nobody(), features=lambda: Features({}, {}))
    port = await listener.start("127.0.0.1", 0)
    await ask("add who cannot read voters", quorum.add(OLD, NO_DISK, port))
    await listener.close(grace=0)

    await ask("add", quorum.add(*joiner, ports[JOINER]))
    await ask("add again", quorum.add(*joiner, ports[JOINER]))
    quorum.joiner.pause()
    await ask("update, which cannot be committed now", quorum.update(epoch, *own, ports[LEADER]))
    await ask("add while that is pending", quorum.add(NOBODY, NO_DISK, ports[LEADER]))
    await ask("remove while that is pending", quorum.remove(*joiner))
    await ask("update while that is pending", quorum.update(epoch, *own, ports[LEADER]))
    quorum.joiner.resume()
    await committed(quorum)
    await ask("update the other voter", quorum.update(epoch, *joiner, ports[JOINER]))
    await committed(quorum)
    await ask("remove", quorum.remove(*joiner))
    await ask("remove again", quorum.remove(*joiner))
    await quorum.observer_has_caught_up()
    await ask("add once more", quorum.add(*joiner, ports[JOINER]))
    await ask("remove the leader", quorum.remove(*own))
    await quorum.until(lambda partition: partition.leader_id == JOINER)
    return answers


async def committed(quorum: Quorum) -> None:
    """Wait until both voters have all that there was."""
    first = await quorum.until(lambda _: True)
    end = max(row.log_end_offset for row in first.topics[0].partitions[0].current_voters)
    await quorum.until(lambda partition: partition.high_watermark > end)


@pytest.fixture(scope="module")
def quorums(kafka_391: StockKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Quorum, Quorum]]:
    directory = tmp_path_factory.mktemp("voters")
    stock = Quorum(kafka_391, directory / "stock", is_stock=True)
    ours = Quorum(kafka_391, directory / "ours", is_stock=False)
    with ExitStack() as stack:
        for quorum in (stock, ours):
            stack.callback(quorum.stop)
            quorum.start()
        yield stock, ours


async def test_voters_are_changed_and_refused_as_by_stock(quorums: tuple[Quorum, Quorum]) -> None:
    stock, ours = await asyncio.gather(*map(play, quorums))
    assert [(what, code, in_common(text)) for what, (code, text) in ours] == [
        (what, code, in_common(text)) for what, (code, text) in stock
    ]
    assert {code for _, (code, _) in stock} == {
        ErrorCode.none,
        ErrorCode.request_timed_out,
        ErrorCode.duplicate_voter,
        ErrorCode.voter_not_found,
        ErrorCode.invalid_request,
        ErrorCode.inconsistent_cluster_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_leader_or_follower,
    }
