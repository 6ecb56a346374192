"""The inputs of a migration: znodes, a ZooKeeper server's answers, and the brokers' answers."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

from kazoo.exceptions import KazooException

from migrator.migration.broker_rpcs.channels import Answered, BrokerChannels
from migrator.migration.broker_rpcs.requests import Addressed
from migrator.records.metadata import Endpoint
from migrator.wire.encode import encode_entity
from migrator.wire.legacy.encode import RequestEncoder
from migrator.wire.legacy.messages import (
    LeaderAndIsr,
    LegacyRequest,
    SendingController,
    StopReplica,
    UpdateMetadata,
    UpdateType,
)
from migrator.zookeeper.jute import GET_CHILDREN, GET_DATA, Multi, MultiRead, Read
from migrator.zookeeper.ops import Check, Create, Delete, SetData
from tests.hostile.doors import Door, Knock, rounds
from tests.hostile.values import Hostile
from tests.hostile.znodes import hold
from tests.migration.support.builders import broker

WEIGHTS: Final = {Door.ZNODES: 4, Door.ZOOKEEPER_ANSWER: 8, Door.BROKER_ANSWER: 12}
ROUND: Final = rounds(WEIGHTS)
REQUESTS: Final[dict[str, LegacyRequest]] = {
    LeaderAndIsr.__name__: LeaderAndIsr(UpdateType.INCREMENTAL, (), ()),
    StopReplica.__name__: StopReplica(()),
    UpdateMetadata.__name__: UpdateMetadata(UpdateType.UNKNOWN, (), ()),
}
LENGTHS: Final = (-(2**31), -5, -4, -1, 0, 1, 9, 2**31 - 1)
PATHS: Final = ("/a", "/b/c")


class MigrationSeat:
    """Everybody whom a migrating controller asks is hostile."""

    node: None = None

    def __init__(self, directory: Path, seed: int, turn: int) -> None:
        del directory, seed
        self.coverage: Counter[str] = Counter()
        self.ends: set[tuple[str, int]] = set()
        self._turn = turn

    async def start(self) -> None:
        """Nothing has to be prepared."""

    async def work(self) -> None:
        """Nobody works here."""

    async def ready(self) -> None:
        """As `start`."""

    async def stop(self) -> None:
        """Nothing is left."""

    async def knock(self, index: int, random: Random) -> str:
        """One answer, or one znode; what it was."""
        knock = ROUND[(self._turn + index) % len(ROUND)]
        self.coverage[f"{knock.door.name} {knock.name}"] += 1
        if knock.door is Door.ZNODES:
            hold(random, knock.name)
        elif knock.door is Door.ZOOKEEPER_ANSWER:
            _zookeeper_answers(random, knock.name)
        else:
            await self._broker_answers(random, knock)
        return f"{knock.door.name} {knock.name}"

    async def _broker_answers(self, random: Random, knock: Knock) -> None:
        peer = _Broker(Hostile(random, {}, self.ends), knock)
        found: list[Answered] = []
        channels = BrokerChannels(
            RequestEncoder(SendingController(3001, 7, 5)),
            lambda _broker_id, _endpoint: peer,
            "REPLICATION",
            on_answer=found.append,
            on_overflow=lambda _: None,
        )
        registered = replace(broker(1), listeners=(Endpoint("REPLICATION", "localhost", 9092, 0),))
        channels.registered({1: registered})
        channels.send([Addressed(1, registered.epoch, (REQUESTS[knock.name],))])
        try:
            while channels.queued[1] or not (peer.asked > 1 or found or channels.troubles.get(1) == ""):
                await asyncio.sleep(0.01)
                if peer.asked and not channels.troubles:
                    break
            trouble = channels.troubles.get(1, "")
            assert "its request cannot be encoded" not in trouble, trouble
            for answer in found:
                answer.refusal.encode()
        finally:
            await channels.close()


class _Broker:
    """Answers each request with something of the right form."""

    def __init__(self, hostile: Hostile, knock: Knock) -> None:
        self.asked = 0
        self._hostile = hostile
        self._knock = knock

    async def request_encoded(self, api_key: int, version: int, body: Any, timeout: float) -> tuple[bytearray, int]:
        self.asked += 1
        assert (api_key, version) == (self._knock.key, self._knock.version)
        return bytearray(b"".join(encode_entity(self._hostile.entity(self._knock.schema)))), 0

    async def close(self) -> None:
        pass


def _zookeeper_answers(random: Random, name: str) -> None:
    """Decode what a server might send.

    :raises AssertionError: it is taken for an answer with what no reply can hold.
    """
    kind = GET_CHILDREN if name.endswith("children") else GET_DATA
    ops = (Create("/a", b""), SetData("/a", b"", 0), Delete("/a", 0), Check("/a", 0))
    request: Any = Multi(ops, "", lambda _: ())
    if name.startswith("MultiRead"):
        request = MultiRead(kind, PATHS, "/chroot")
    elif name.startswith("Read"):
        request = Read(kind, PATHS[0], "/chroot")
    asked = len(ops) if name == "Multi" else len(PATHS) if name.startswith("MultiRead") else 1
    body = b"".join(_result(random, kind, name, number) for number in range(asked))
    if random.random() < 0.1:
        body = body[: random.randrange(len(body) + 1)]
    try:
        found = request.deserialize(bytes(16) + body, 16)
    except KazooException:
        return
    results: Sequence[Any] = found if isinstance(found, list) else [found]
    assert len(results) == asked
    assert sum(len(result) for result in results if isinstance(result, tuple)) <= len(body)


def _result(random: Random, kind: int, name: str, number: int) -> bytes:
    """Of one operation, with one length or code that may be wrong."""
    code = (1, 5, 2, 13)[number % 4] if name == "Multi" else kind
    if random.random() < 0.2:
        code = random.choice((-1, 0, 99, 2**31 - 1, -(2**31)))
    head = b"" if name.startswith("Read") else struct.pack(">i?i", code, random.random() < 0.1, 0)
    stat = random.randbytes(68) if random.random() < 0.3 else bytes(68)
    text = struct.pack(">i", random.choice(LENGTHS) if random.random() < 0.4 else 3) + random.choice(
        (b"abc", b"\xff\xff\xff")
    )
    if code == GET_CHILDREN and kind == GET_CHILDREN:
        return head + struct.pack(">i", random.choice(LENGTHS) if random.random() < 0.5 else 2) + text + text
    if code in (GET_DATA, 1):
        return head + text + (stat if code == GET_DATA else b"")
    return head + (
        stat if code == 5 else struct.pack(">i", random.choice((0, -101, -103, 2**31 - 1))) if code == -1 else b""
    )
