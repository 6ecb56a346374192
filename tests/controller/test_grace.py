"""A new leader does not fence a broker in ZooKeeper mode that lives, although its heartbeat hangs at the leader before.

A small world of one broker, its processes, a follower, and three controllers, each with a connection to the broker.
Seeds kill, stop and shut down processes, break connections, and hang one leader after the other. Bugs on purpose show
that its rules see what they are about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from migrator.controller import grace
from migrator.controller import sessions as sessions_of
from migrator.controller.brokers import register_broker
from migrator.controller.decision import RefusedError
from migrator.controller.effective import UncleanElections
from migrator.controller.grace import GRACE_MS, Evidence
from migrator.controller.heartbeats import HeartbeatRequest, heartbeat
from migrator.controller.schedule import fence_silent_broker
from migrator.controller.sessions import Sessions
from migrator.image.model import BrokerRegistration, FeaturesImage, MetadataImage
from migrator.records.metadata import PartitionChangeRecord, ZkMigrationState, ZkMigrationStateRecord
from tests.controller.support import leading_controller
from tests.controller.support.leading_controller import SESSION_MS, LeadingController, registration

BROKER, FOLLOWER = 1, 2
STEP_MS = 500
HEARTBEAT_MS = 2_000
HANGS_MS = 10_000, 30_000
"""For how long a broker in ZooKeeper mode waits for an answer: until the hung leader goes on, or the time-out."""
CONTROLLERS = 3
LONG, SHORT = (60, 110), (3, 10)
"""For how many steps a leader leads; a short time is less than a session."""
SEEDS = [
    *((seed, (LONG,) * 4) for seed in range(150)),
    *((seed, (LONG, SHORT, SHORT, SHORT, LONG)) for seed in range(60)),
]
"""Each with how long its leaders lead, one after the other."""
MODE = "only an unfenced broker in ZooKeeper mode has grace, in dual-write"
HEARD = "who was heard of has an ordinary session"
RIVAL = "another process ends the grace"
END = "the grace ends"
PROCESS = "only the registered process keeps its place"
LIVES = "a broker that lives is not fenced"
WISH = "a wish of the broker acts at once"
STOPS = "a broker that is stopping has no grace"
SOLE = "a broker in whose place a follower could lead has no grace"
FIGURE = "graced brokers are counted"


@dataclass
class Connection:
    """Of one controller to the process with that number, opened to a registration."""

    process: int
    epoch: int
    opened_ms: int


class World:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.in_zookeeper_mode = self.random.random() < 0.8
        self.dual_writes = self.random.random() < 0.9
        self.trouble = self.random.choice((0.2, 0.5, 1))
        self.controller = LeadingController(zookeeper_metadata_migration_enable=True)
        self.controller.write(ZkMigrationStateRecord(ZkMigrationState.MIGRATION))
        self.controller.start((BROKER, FOLLOWER), is_migrating_zk_broker=self.in_zookeeper_mode)
        self.replicas = self.random.choice(((BROKER,), (BROKER, FOLLOWER), (FOLLOWER, BROKER)))
        self.is_unclean = self.random.random() < 0.5
        unclean = {"unclean_leader_election_enable": str(self.is_unclean).lower()}
        self.topic = self.controller.create("t", self.replicas, **unclean)
        if not self.dual_writes:
            self.controller.write(ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION))
        self.registered, self.runs, self.lost, self.stopped = 1, 1, 0, False
        """Processes by number: the registered one, the one that runs, one that still answers, but sends nothing (0:
        none), and whether the one that runs got SIGSTOP."""
        self.wish = ""
        """The field of the next heartbeats that is true."""
        self.reaches_leader, self.leader_hangs = True, False
        self.ran_ms = self.heard_ms = self.bad_ms = self.controller.now_ms
        """When the registered process ran last, when the leader heard of it, and when it last did not run."""
        self.hangs_until_ms = self.active_ms = self.rival_ms = 0
        self.leader = self.epoch = 0
        self.evidence = Evidence(SESSION_MS)
        self.proven_ms, self.led_since_ms = 0, self.now_ms
        self.connections: dict[int, Connection] = {}
        self.at_activation = self.controller.image.cluster.brokers[BROKER]
        self.proof: Connection | None = None
        self.was_sole = False

    @property
    def now_ms(self) -> int:
        return self.controller.now_ms

    @property
    def lives(self) -> bool:
        return bool(self.runs) and not self.stopped

    @property
    def unfenced(self) -> bool:
        return not self.controller.image.cluster.brokers[BROKER].fenced

    def run(self, leaders: Iterable[tuple[int, ...]]) -> None:
        """Leaders that hang, one after the other."""
        first, *others = leaders
        self.lead(first)
        for lengths in others:
            self.hang()
            self.take_over()
            self.lead(lengths)

    def lead(self, lengths: tuple[int, ...]) -> None:
        for step in range(self.random.choice(lengths)):
            self.step()
            self.evidence.leads(self.epoch, self.now_ms)
            is_stopping = self.controller.image.cluster.brokers[BROKER].in_controlled_shutdown
            if step * STEP_MS > SESSION_MS + STEP_MS and is_stopping and self.random.random() < 0.3:
                return

    def hang(self) -> None:
        self.reaches_leader = self.random.random() < 0.7
        if self.unfenced and not self.controller.image.cluster.brokers[BROKER].in_controlled_shutdown:
            isr = self.random.choice(((BROKER,), self.replicas))
            self.controller.write(PartitionChangeRecord(0, self.topic, isr=isr, leader=BROKER))
        if self.now_ms - self.led_since_ms >= 2 * SESSION_MS:
            self.proven_ms = self.now_ms - 2 * SESSION_MS
        self.leader_hangs = True
        for _ in range(self.random.randrange(5, 12)):
            self.step()

    def take_over(self) -> None:
        controller, image = self.controller, self.controller.image
        self.leader, self.leader_hangs = (self.leader + 1) % CONTROLLERS, False
        self.epoch, self.led_since_ms = self.epoch + 1, self.now_ms
        self.active_ms, self.heard_ms, self.rival_ms = self.now_ms, 0, 0
        self.at_activation, self.proof = image.cluster.brokers[BROKER], self.connections.get(self.leader)
        is_alone = controller.partition("t").isr == (BROKER,)
        self.was_sole = self.is_unclean and is_alone and FOLLOWER in self.replicas
        sessions = controller.sessions = Sessions(SESSION_MS)
        sessions.begin(image, self.now_ms)
        is_unclean = UncleanElections(image, controller.context()).enabled
        sessions.no_grace(found for found in grace.replaceable(image, is_unclean) if found is not None)

    def step(self) -> None:
        """Events, messages and decisions of the leader; then the rules."""
        self.controller.now_ms += STEP_MS
        self.chance()
        self.connect()
        is_good = self.lives and self.runs == self.registered
        if is_good or self.lost == self.registered:
            self.ran_ms = self.now_ms
        if not is_good:
            self.bad_ms = self.now_ms
        if self.leader_hangs:
            if self.lives and self.reaches_leader and self.now_ms >= self.hangs_until_ms:
                self.hangs_until_ms = self.now_ms + self.random.choice(HANGS_MS)
            return
        if self.now_ms % HEARTBEAT_MS == 0:
            self.controller.beat(FOLLOWER)
        if self.lives and self.reaches_leader and self.now_ms >= self.hangs_until_ms:
            self.talk()
        self.ask()
        checked_ms = self.controller.sessions.next_check_ms(self.controller.image, self.now_ms)
        if checked_ms is not None and checked_ms <= self.now_ms:
            self.controller.commit(fence_silent_broker(self.controller.image, self.controller.context()))
        if self.active_ms:
            self.check()

    def chance(self) -> None:
        """Events of the process and of the network."""
        which = self.random.random() / self.trouble
        if which < 0.02:
            self.lost, self.runs = self.random.choice((self.lost, self.runs)), 0
        elif which < 0.04:
            self.stopped = not self.stopped
        elif which < 0.05:
            self.reaches_leader = not self.reaches_leader
        elif which < 0.07:
            self.connections.pop(self.random.randrange(CONTROLLERS), None)
        elif which < 0.08:
            self.wish = self.random.choice(("want_fence", "want_shut_down"))
        if not self.runs and self.random.random() < 0.3:
            self.runs, self.stopped, self.wish, self.hangs_until_ms = self.registered + 1, False, "", 0

    def connect(self) -> None:
        """Each controller keeps a connection to the broker while it is unfenced. It hears late of a registration."""
        epoch = self.controller.image.cluster.brokers[BROKER].epoch
        for controller in range(CONTROLLERS):
            held = self.connections.get(controller)
            is_old = held is not None and held.epoch != epoch and self.random.random() < 0.01
            if held is not None and (is_old or held.process not in (self.runs, self.lost)):
                del self.connections[controller]
            elif held is None and self.lives and self.unfenced and self.random.random() < 0.5:
                self.connections[controller] = Connection(self.runs, epoch, self.now_ms)

    def talk(self) -> None:
        """The process and the leader reach each other."""
        controller = self.controller
        if self.runs == self.registered:
            if self.now_ms - self.heard_ms >= HEARTBEAT_MS:
                self.heard_ms = self.now_ms
                self.beat()
            return
        controller.sessions.rival_asked(BROKER, self.now_ms)
        self.rival_ms = self.rival_ms or self.now_ms
        request = registration(BROKER, incarnation=self.runs, is_migrating_zk_broker=self.in_zookeeper_mode)
        try:
            controller.decide(register_broker, request)
        except RefusedError:
            return
        self.registered, self.rival_ms = self.runs, 0

    def beat(self) -> None:
        wish, self.wish = self.wish, self.wish if self.wish == "want_shut_down" else ""
        response = self.controller.beat(BROKER, **({wish: True} if wish else {}))
        is_stopping = wish == "want_shut_down" and self.controller.image.cluster.brokers[BROKER].in_controlled_shutdown
        assert not wish or response.is_fenced or is_stopping, WISH
        if response.should_shut_down:
            self.runs = 0

    def ask(self) -> None:
        held = self.connections.get(self.leader)
        answers = held is not None and (self.lives if held.process == self.runs else held.process == self.lost)
        if held is not None and answers and self.evidence.covers(held.opened_ms):
            self.controller.sessions.answered(BROKER, held.epoch, self.now_ms)

    def check(self) -> None:
        registration, active_ms = self.controller.image.cluster.brokers[BROKER], self.active_ms
        last_ms = max(active_ms, self.heard_ms)
        is_silent, may_have = self.now_ms > last_ms + SESSION_MS, self.in_zookeeper_mode and self.dual_writes
        if self.unfenced and is_silent:
            assert may_have, MODE
            assert not self.heard_ms, HEARD
            assert not self.rival_ms, RIVAL
            assert self.now_ms <= active_ms + GRACE_MS, END
            assert not self.at_activation.in_controlled_shutdown, STOPS
            assert not self.was_sole, SOLE
            assert self.now_ms <= self.ran_ms + SESSION_MS + STEP_MS, PROCESS
        is_graced = self.controller.sessions.is_graced(registration, self.now_ms)
        assert is_graced is (self.unfenced and is_silent), FIGURE
        before, proof = self.at_activation, self.proof
        is_steady = (
            proof is not None
            and proof is self.connections.get(self.leader)
            and proof.epoch == before.epoch
            and max(proof.opened_ms, self.bad_ms) <= self.proven_ms
        )
        was_well = not before.fenced and not before.in_controlled_shutdown and not self.was_sole
        if is_steady and was_well and may_have and not self.heard_ms:
            assert self.unfenced or self.now_ms > active_ms + GRACE_MS, LIVES


def run_seeds() -> None:
    for seed, leaders in SEEDS:
        World(seed).run(leaders)


def test_rules_hold() -> None:
    run_seeds()


def forgets_what_was_heard(self: Sessions, broker_id: int, epoch: int, now_ms: int) -> None:
    """The answers count on."""
    session = self._by_broker[broker_id]
    if session.epoch == epoch:
        self._by_broker[broker_id] = replace(session, last_contact_ms=now_ms, presumed=False)


def takes_any_registration(self: Sessions, broker_id: int, _epoch: int, sent_ms: int) -> None:
    session = self._by_broker[broker_id]
    if session.answered_ms is not None:
        self._by_broker[broker_id] = replace(session, answered_ms=max(session.answered_ms, sent_ms))


def adds_leaders_up(self: Evidence, _epoch: int, now_ms: int) -> None:
    self._proven_ms = now_ms - 2 * SESSION_MS


def lasts(answered_ms: int, _active_ms: int, session_ms: int) -> int:
    return answered_ms + session_ms


def for_kraft_brokers(image: MetadataImage, broker: BrokerRegistration) -> bool:
    return grace.may_have_grace(image, replace(broker, is_migrating_zk_broker=True))


def before_dual_write(image: MetadataImage, broker: BrokerRegistration) -> bool:
    features = FeaturesImage(image.features.levels, ZkMigrationState.MIGRATION)
    return grace.may_have_grace(replace(image, features=features), broker)


def while_stopping(image: MetadataImage, broker: BrokerRegistration) -> bool:
    return grace.may_have_grace(image, replace(broker, in_controlled_shutdown=False))


def all_in_an_isr(image: MetadataImage, _is_unclean: Any) -> Iterator[int | None]:
    yield from (b for topic in image.topics.by_id.values() for p in topic.partitions.values() for b in p.isr)


def wishes_wait(image: MetadataImage, request: HeartbeatRequest, context: Any) -> Any:
    waits = context.now_ms <= context.sessions._active_ms + GRACE_MS
    return heartbeat(image, replace(request, want_fence=False, want_shut_down=False) if waits else request, context)


BUGS: dict[str, tuple[object, str, object, str]] = {
    "a connection of any age is proof": (Evidence, "covers", lambda *_: True, PROCESS),
    "leaders that led for less than a session are proof together": (Evidence, "leads", adds_leaders_up, PROCESS),
    "no leader is proof": (Evidence, "leads", lambda *_: None, LIVES),
    "answers of an older registration count": (Sessions, "answered", takes_any_registration, PROCESS),
    "the grace does not end": (sessions_of, "grace_ends_ms", lasts, END),
    "one answer is enough": (sessions_of, "grace_ends_ms", lambda _, active_ms, __: active_ms + GRACE_MS, PROCESS),
    "a broker in KRaft mode has it": (sessions_of, "may_have_grace", for_kraft_brokers, MODE),
    "it is given before dual-write": (sessions_of, "may_have_grace", before_dual_write, MODE),
    "a broker that is stopping has it": (sessions_of, "may_have_grace", while_stopping, STOPS),
    "the only member of an ISR has it": (grace, "replaceable", lambda *_: (), SOLE),
    "all members of an ISR lose it": (grace, "replaceable", all_in_an_isr, LIVES),
    "another process does not end it": (Sessions, "rival_asked", lambda *_: None, RIVAL),
    "a heartbeat does not end it": (Sessions, "heard", forgets_what_was_heard, HEARD),
    "wishes wait for its end": (leading_controller, "heartbeat", wishes_wait, WISH),
    "nobody has it": (sessions_of, "may_have_grace", lambda *_: False, LIVES),
    "every broker is counted": (Sessions, "is_graced", Sessions.is_valid, FIGURE),
}
"""Each with the rule that it breaks."""


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("name", BUGS)
def test_rules_see_each_planted_bug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, replacement, rule = BUGS[name]
    monkeypatch.setattr(target, attribute, replacement)
    with pytest.raises(AssertionError, match=rule):
        run_seeds()
