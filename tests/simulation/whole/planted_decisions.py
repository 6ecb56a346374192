"""Bugs on purpose in what the active controller decides, and in what followers and brokers learn of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from migrator.apis import brokers as apis
from migrator.controller import alter_partition, brokers, heartbeats, producer_ids, rollout_lock, topics
from migrator.controller.partition_change import ChangeRules
from migrator.controller.sessions import Sessions
from migrator.node import rollout_lock as keeper
from migrator.node.active import ActiveController
from migrator.raft import replication, responses
from migrator.raft.quorum import Quorum
from migrator.records.uuid import Uuid
from tests.simulation.whole.planting import ALONE, ELECTIONS, Patches, bug

BROKERS = {"brokers": 3, "other_share": 0.5, "chaos_seconds": 15}


@bug(**ALONE)
def followers_are_told_that_all_is_committed() -> Patches:
    """A follower publishes what its leader has only written (Elasticsearch 20031)."""
    original = responses.fetch

    def fetch(quorum: Quorum, error: Any, **parts: Any) -> Any:
        if parts.get("high_watermark", -1) >= 0:
            parts["high_watermark"] = quorum.log.end_offset()
        return original(quorum, error, **parts)

    return [(responses, "fetch", fetch)]


@bug(cut_rate=0.2, alone_rate=0.2, chaos_seconds=25, writes=2)
def leader_without_a_majority_leads_on() -> Patches:
    return [(replication, "is_cut_off", lambda _quorum, _leader: False)]


@bug(brokers=4, delay_ms_max=100, writes=0, chaos_seconds=10)
def ids_are_given_by_the_committed_image() -> Patches:
    """Two brokers that ask at the same time get the same producer ids."""
    original = producer_ids.allocate_producer_ids
    images: dict[int, Any] = {}
    context_of = ActiveController.context

    def context(self: ActiveController) -> Any:
        images[self._settings.node_id] = self._metadata.published
        return context_of(self)

    def allocate(image: Any, request: Any, context: Any) -> Any:
        committed = images[context.leader_id]
        return original(replace(image, producer_ids_next=committed.producer_ids_next), request, context)

    return [(apis, "allocate_producer_ids", allocate), (ActiveController, "context", context)]


@bug(**BROKERS, **ELECTIONS)
def broker_epoch_is_given_again() -> Patches:
    original = brokers.register_broker

    def register(image: Any, request: Any, context: Any) -> Any:
        known = image.cluster.brokers.get(request.broker_id)
        return original(image, request, context if known is None else replace(context, next_offset=known.epoch))

    return [(apis, "register_broker", register)]


@bug(**BROKERS, **ELECTIONS)
def topic_id_is_given_again() -> Patches:
    """Each leader counts its topics, and makes their ids of that."""
    counts: Counter[Random] = Counter()

    def count(chance: Random) -> Uuid:
        counts[chance] += 1
        return Uuid((1_000 + counts[chance]).to_bytes(16, "big"))

    return [(topics, "random_uuid", count)]


@bug(**BROKERS, **ELECTIONS)
def isr_is_changed_by_who_knows_an_old_one() -> Patches:
    original = alter_partition._fault

    def fault(image: Any, fenced: Any, broker_id: int, partition: Any, wanted: Any) -> Any:
        epochs = {"leader_epoch": partition.leader_epoch, "partition_epoch": partition.partition_epoch}
        return original(image, fenced, broker_id, partition, replace(wanted, **epochs))

    return [(alter_partition, "_fault", fault)]


@bug(**BROKERS, **ELECTIONS)
def partition_is_led_by_who_is_not_in_sync() -> Patches:
    def elect(self: ChangeRules, partition: Any, wanted: Any, _election: Any) -> tuple[int, bool]:
        able = (one for one in wanted.replicas if self.can_lead(one, partition))
        return next(able, -1), False

    return [(ChangeRules, "_elect", elect)]


@bug(**BROKERS)
def broker_that_a_leader_never_heard_stays_unfenced() -> Patches:
    """It fell silent before the election (Kafka's sessions of a new controller are begun for that)."""
    original = Sessions.stalest

    def stalest(self: Sessions, image: Any, now_ms: int) -> int | None:
        found = original(self, image, now_ms)
        session = None if found is None else self.get(found)
        return None if session is None or session.presumed else found

    return [(Sessions, "stalest", stalest)]


@bug(**BROKERS, **ELECTIONS)
def broker_stays_fenced() -> Patches:
    original = heartbeats.heartbeat

    def heartbeat(image: Any, request: Any, context: Any) -> Any:
        return original(image, replace(request, want_fence=True), context)

    return [(apis, "heartbeat", heartbeat)]


@bug(look_rate=20, delay_ms_max=20, sync_ms_max=20)
def lock_is_taken_by_two() -> Patches:
    def move(image: Any, _before: str, after: str) -> Any:
        return rollout_lock.move_lock(image, rollout_lock.lock_text(image), after)

    return [(keeper, "move_lock", move)]
