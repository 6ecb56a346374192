"""ZooKeeper and brokers in ZooKeeper mode as followers of many changes, for the phases that `lifetime` measures.

The models answer at once and in another turn of the event loop, so only the controller's own work is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Any

from immutables import Map

from migrator.image.model import Acl, ImageDelta, MetadataImage
from migrator.image.security import acl_record
from migrator.migration.broker_rpcs.messenger import BrokerMessenger
from migrator.migration.write_behind import messages
from migrator.migration.write_behind.core import WriteBehind
from migrator.migration.write_behind.lag import at_of
from migrator.migration.write_behind.multis import Limits
from migrator.migration.write_executor import WriteExecutor
from migrator.records import metadata as rec
from migrator.turns import give_back
from migrator.wire.legacy.messages import SendingController
from migrator.zookeeper.leadership import Claim
from migrator.zookeeper.ops import Applied, Stat
from migrator.zookeeper.znodes.migration import INITIAL_STATE
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.controller.support.leading_controller import some_uuid
from tests.migration.broker_rpcs.test_channels import FakePeer
from tests.node.support.cluster import until

LIMITS = Limits(max_ops=20)
STAT = Stat(1, 1, 1, 0, 0, 0, 0, 1)


def more_entries(topics: int) -> Iterable[rec.MetadataRecord]:
    """Access control entries beside those that there are."""
    for number in range(topics):
        yield acl_record(some_uuid(2 * 10**6 + number), Acl(2, f"t{number}", 3, "User:more", "*", 3, 3))


class ZooKeeper:
    """A write-behind whose ZooKeeper has every multi at once, and is told of it in another turn."""

    def __init__(self, image: MetadataImage) -> None:
        nothing: Any = None
        passwords = PasswordEncoder(None, bytes)
        writes = WriteExecutor(nothing, passwords, nothing, frozenset(), lambda _: None)
        self._core = WriteBehind(image, writes.derive, lambda _: 1, LIMITS)
        writes.attach(lambda: self._core)
        self._events: deque[messages.WriteEvent] = deque()
        self._now_ms = 0
        self.operations = 0

    async def take(self, events: Iterable[messages.WriteEvent]) -> None:
        """All of them, and only then what becomes of them."""
        for event in events:
            self._step(event)
            await give_back()
        while self._events:
            self._step(self._events.popleft())
            await give_back()

    def _step(self, event: messages.WriteEvent) -> None:
        for effect in self._core.step(event, self._now_ms):
            if isinstance(effect, messages.SendMulti):
                self.operations += len(effect.ops)
                results = (None, STAT, *(None,) * (len(effect.ops) - 2))
                self._events.append(messages.MultiEnded(effect.number, Applied(results)))
            if isinstance(effect, messages.WakeAt):
                self._now_ms = max(self._now_ms, effect.time_ms)
                self._events.append(messages.TimerExpired())

    @property
    def has_all(self) -> bool:
        return self._core.drained


def opened(image: MetadataImage) -> list[messages.WriteEvent]:
    return [
        messages.Opened(Claim(1, 1, 1, INITIAL_STATE, 1), at_of(image)),
        messages.ReconcileBegun(image),
        messages.ReconcileWrites((), last=True),
    ]


def in_zookeeper_mode(image: MetadataImage) -> MetadataImage:
    """The same cluster before its brokers became KRaft brokers."""
    brokers = image.cluster.brokers.items()
    migrating = {key: replace(broker, is_migrating_zk_broker=True, fenced=False) for key, broker in brokers}
    return replace(image, cluster=replace(image.cluster, brokers=Map(migrating)))


async def told(deltas: Sequence[ImageDelta], one_more: ImageDelta, deleted: Sequence[ImageDelta]) -> AsyncIterator[str]:
    """Followers that are behind by all ``deltas``, then by one entry, then by the deletion of all topics.

    Name each phase when it is over.
    """
    before = deltas[0].before
    zookeeper = ZooKeeper(before)
    await zookeeper.take(opened(before))
    yield ""
    await zookeeper.take(map(messages.Published, deltas))
    yield "ZooKeeper is told of much"
    await zookeeper.take([messages.Published(one_more)])
    yield "ZooKeeper is told of one entry"
    await zookeeper.take(map(messages.Published, deleted))
    assert zookeeper.has_all
    assert zookeeper.operations > len(before.topics.by_id)
    yield "ZooKeeper is told that all topics are deleted"
    peers: dict[int, FakePeer] = {}

    def connect(broker_id: int, _endpoint: object) -> FakePeer:
        return peers.setdefault(broker_id, FakePeer())

    failures: list[BaseException] = []
    messenger = BrokerMessenger("PLAINTEXT", connect, failures.append)
    messenger.open(SendingController(1, 1, 1), in_zookeeper_mode(before), before.topics.ids, -1)
    await messenger.full()
    for what, some in (("much", deltas), ("the deletion of all topics", deleted)):
        await until(lambda: not any(messenger.queued.values()), "brokers have heard all")
        heard = sum(len(peer.heard) for peer in peers.values())
        yield ""
        for delta in some:
            after = in_zookeeper_mode(delta.after)
            messenger.publish(replace(delta, before=in_zookeeper_mode(delta.before), after=after))
            await give_back()
        await until(lambda: messenger._image is after, "all is planned")  # noqa: B023 (awaited)
        await until(lambda: not any(messenger.queued.values()), "brokers have heard all")
        assert sum(len(peer.heard) for peer in peers.values()) > heard
        yield f"brokers in ZooKeeper mode are told of {what}"
    messenger.close()
    await messenger.closed()
    assert not failures
