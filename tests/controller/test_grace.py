"""A new leader does not fence a broker in ZooKeeper mode that lives, although its heartbeat hangs at the leader before.

A small world of one broker, its processes, and one connection of the controller that will lead: seeds kill and stop
processes, break the connection, hang the leader. Bugs on purpose show that its rules see what they are about.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from migrator.controller import sessions as sessions_of
from migrator.controller.brokers import register_broker
from migrator.controller.decision import RefusedError
from migrator.controller.effective import UncleanElections
from migrator.controller.grace import GRACE_MS, replaceable
from migrator.controller.schedule import fence_silent_broker
from migrator.controller.sessions import Sessions
from migrator.records.metadata import PartitionChangeRecord, ZkMigrationState, ZkMigrationStateRecord
from tests.controller.support.leading_controller import SESSION_MS, LeadingController, registration

BROKER, FOLLOWER = 1, 2
STEP_MS = 500
HEARTBEAT_MS = 2_000
HANGS_MS = 10_000, 30_000
"""For how long a broker in ZooKeeper mode waits for an answer: until the hung leader goes on, or the time-out."""
SEEDS = range(150)
MODE = "a broker in KRaft mode has no grace"
HEARD = "who was heard of has an ordinary session"
RIVAL = "another process ends the grace"
END = "the grace ends"
PROCESS = "only the registered process keeps its place"
LIVES = "a broker that lives is not fenced"
ZOOKEEPER = {"is_migrating_zk_broker": True}


def dual_writing(**changes: Any) -> LeadingController:
    """A leader with one broker, unfenced, in ZooKeeper mode unless ``changes`` says otherwise."""
    controller = LeadingController(zookeeper_metadata_migration_enable=True)
    controller.write(ZkMigrationStateRecord(ZkMigrationState.MIGRATION))
    controller.start((BROKER,), **ZOOKEEPER | changes)
    return controller


class World:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.in_zookeeper_mode = self.random.random() < 0.8
        self.trouble = self.random.choice((0.2, 0.5, 1))
        self.controller = dual_writing(is_migrating_zk_broker=self.in_zookeeper_mode)
        self.registered, self.runs, self.stopped = 1, 1, False
        """Processes by number: the registered one, the one that exists (0: none), whether it got SIGSTOP."""
        self.reaches_leader = True
        self.ran_ms = self.heard_ms = self.controller.now_ms
        self.hangs_until_ms = 0
        self.hung_since_ms = self.active_ms = self.rival_ms = 0
        self.opened: tuple[int, int] | None = None
        """The standby's connection: to which process, and since when."""
        self.steady_ms = 0
        """Since when it is the registered process that runs, and the connection leads to it."""
        self.was_unfenced = False

    @property
    def now_ms(self) -> int:
        return self.controller.now_ms

    @property
    def unfenced(self) -> bool:
        return not self.controller.image.cluster.brokers[BROKER].fenced

    @property
    def lives(self) -> bool:
        return bool(self.runs) and not self.stopped

    def run(self) -> None:
        for _ in range(self.random.randrange(4, 100)):
            self.step()
        self.hung_since_ms = self.now_ms
        for _ in range(self.random.randrange(5, 12)):
            self.step()
        self.hung_since_ms, self.active_ms, self.heard_ms, self.rival_ms = 0, self.now_ms, 0, 0
        self.was_unfenced = self.unfenced
        self.controller.sessions = Sessions(SESSION_MS)
        self.controller.sessions.begin(self.controller.image, self.now_ms)
        for _ in range(120):
            self.step()
            self.check()

    def step(self) -> None:
        self.controller.now_ms += STEP_MS
        self.chance()
        self.connect()
        if self.lives and self.runs == self.registered:
            self.ran_ms = self.now_ms
        if self.hung_since_ms and self.lives:
            self.hangs_until_ms = self.hangs_until_ms or self.now_ms + self.random.choice(HANGS_MS)
        elif self.lives and self.reaches_leader and self.now_ms >= self.hangs_until_ms:
            self.hangs_until_ms = 0
            self.talk()
        if self.active_ms:
            self.ask()
        if not self.hung_since_ms and self.unfenced:
            self.controller.commit(fence_silent_broker(self.controller.image, self.controller.context()))

    def chance(self) -> None:
        """What happens to the process and to the network."""
        which = self.random.random() / self.trouble
        if which < 0.02:
            self.runs = 0
        elif which < 0.04:
            self.stopped = not self.stopped
        elif which < 0.05:
            self.reaches_leader = not self.reaches_leader
        elif which < 0.06:
            self.opened = None
        if not self.runs and self.random.random() < 0.3:
            self.runs, self.stopped, self.hangs_until_ms = self.registered + 1, False, 0
        if not (self.lives and self.runs == self.registered and self.opened):
            self.steady_ms = self.now_ms

    def connect(self) -> None:
        if self.opened is not None and self.opened[0] != self.runs:
            self.opened = None
        if self.opened is None and self.lives and self.unfenced and self.random.random() < 0.5:
            self.opened = self.runs, self.now_ms

    def talk(self) -> None:
        """The process and the leader reach each other."""
        controller = self.controller
        if self.runs == self.registered:
            if self.now_ms - self.heard_ms >= HEARTBEAT_MS:
                self.heard_ms = self.now_ms
                controller.beat(BROKER)
            return
        controller.sessions.rival_asked(BROKER, self.now_ms)
        self.rival_ms = self.rival_ms or self.now_ms
        request = registration(BROKER, incarnation=self.runs, is_migrating_zk_broker=self.in_zookeeper_mode)
        try:
            controller.decide(register_broker, request)
        except RefusedError:
            return
        self.registered, self.rival_ms, self.opened = self.runs, 0, None

    def ask(self) -> None:
        if self.opened is not None and self.lives:
            epoch = self.controller.image.cluster.brokers[BROKER].epoch
            self.controller.sessions.answered(BROKER, epoch, opened_ms=self.opened[1], sent_ms=self.now_ms)

    def check(self) -> None:
        silent_since_ms = max(self.active_ms, self.heard_ms)
        is_silent = self.now_ms > silent_since_ms + SESSION_MS + STEP_MS
        if self.unfenced and is_silent:
            assert self.in_zookeeper_mode, MODE
            assert not self.heard_ms, HEARD
            assert not self.rival_ms, RIVAL
            assert self.now_ms <= self.active_ms + GRACE_MS, END
            assert self.now_ms <= self.ran_ms + SESSION_MS + STEP_MS, PROCESS
        was_steady = self.was_unfenced and self.steady_ms <= self.active_ms - 2 * SESSION_MS
        if was_steady and not self.heard_ms and self.in_zookeeper_mode:
            assert self.unfenced or self.now_ms > self.active_ms + GRACE_MS, LIVES


def run_seeds() -> None:
    for seed in SEEDS:
        World(seed).run()


def test_rules_hold() -> None:
    run_seeds()


def forgets_what_was_heard(self: Sessions, broker_id: int, epoch: int, now_ms: int) -> None:
    """The answers count on."""
    session = self._by_broker[broker_id]
    if session.epoch == epoch:
        self._by_broker[broker_id] = replace(session, last_contact_ms=now_ms, presumed=False)


def lasts(answered_ms: int, _active_ms: int, session_ms: int) -> int:
    return answered_ms + session_ms


BUGS: dict[str, tuple[object, str, object, str]] = {
    "a connection of any age is proof": (sessions_of, "is_proof", lambda *_: True, PROCESS),
    "the grace does not end": (sessions_of, "grace_ends_ms", lasts, END),
    "one answer is enough": (sessions_of, "grace_ends_ms", lambda _, active_ms, __: active_ms + GRACE_MS, PROCESS),
    "every broker has it": (sessions_of, "may_have_grace", lambda *_: True, MODE),
    "another process does not end it": (Sessions, "no_grace", lambda *_: None, RIVAL),
    "a heartbeat does not end it": (Sessions, "heard", forgets_what_was_heard, HEARD),
    "nobody has it": (sessions_of, "may_have_grace", lambda *_: False, LIVES),
}
"""Each with the rule that it breaks."""


@pytest.mark.parametrize("name", BUGS)
def test_rules_see_each_planted_bug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, replacement, rule = BUGS[name]
    monkeypatch.setattr(target, attribute, replacement)
    with pytest.raises(AssertionError, match=rule):
        run_seeds()


def taken_over(controller: LeadingController) -> Sessions:
    """The sessions of the next leader, which becomes active now, in a world that is old."""
    controller.now_ms += 100_000
    controller.sessions = Sessions(SESSION_MS)
    controller.sessions.begin(controller.image, controller.now_ms)
    return controller.sessions


def answer(controller: LeadingController, after_ms: int, epoch: int | None = None) -> None:
    controller.now_ms += after_ms
    registered = controller.image.cluster.brokers[BROKER].epoch
    controller.sessions.answered(BROKER, registered if epoch is None else epoch, opened_ms=0, sent_ms=controller.now_ms)


def fenced(controller: LeadingController) -> bool:
    while controller.commit(fence_silent_broker(controller.image, controller.context())) is not None:
        pass
    return controller.image.cluster.brokers[BROKER].fenced


def test_grace_counts_only_beyond_the_session() -> None:
    controller = dual_writing()
    sessions, broker = taken_over(controller), controller.image.cluster.brokers[BROKER]
    answer(controller, 5_000)
    assert not sessions.is_graced(broker, controller.now_ms)
    answer(controller, 5_000)
    assert sessions.is_graced(broker, controller.now_ms)
    assert sessions.next_check_ms(controller.image, controller.now_ms) == controller.now_ms + SESSION_MS + 1
    controller.beat(BROKER)
    assert not sessions.is_graced(broker, controller.now_ms)


def test_answers_of_an_older_registration_do_not_count() -> None:
    controller = dual_writing()
    taken_over(controller)
    answer(controller, 5_000, epoch=controller.image.cluster.brokers[BROKER].epoch - 1)
    controller.now_ms += SESSION_MS
    assert fenced(controller)


@pytest.mark.parametrize("wish", ["want_fence", "want_shut_down"])
def test_wishes_of_the_broker_act_at_once(wish: str) -> None:
    controller = dual_writing()
    taken_over(controller)
    answer(controller, 10_000)
    response = controller.beat(BROKER, **{wish: True})
    assert response.is_fenced
    assert response.should_shut_down is (wish == "want_shut_down")


def test_a_broker_that_is_stopping_has_none() -> None:
    controller = dual_writing()
    controller.start((FOLLOWER,), **ZOOKEEPER)
    controller.create("led", (BROKER, FOLLOWER))
    controller.beat(BROKER, want_shut_down=True)
    assert controller.image.cluster.brokers[BROKER].in_controlled_shutdown
    taken_over(controller)
    answer(controller, SESSION_MS + 1)
    assert fenced(controller)


@pytest.mark.parametrize(
    ("state", "has_grace"), [(ZkMigrationState.MIGRATION, True), (ZkMigrationState.PRE_MIGRATION, False)]
)
def test_only_in_dual_write(state: ZkMigrationState, has_grace: bool) -> None:
    controller = dual_writing()
    controller.write(ZkMigrationStateRecord(state))
    taken_over(controller)
    answer(controller, 8_000)
    controller.now_ms += 2_000
    assert fenced(controller) is not has_grace


def test_the_only_member_of_an_isr_whose_follower_could_lead_has_none() -> None:
    controller = dual_writing()
    controller.start((FOLLOWER,), **ZOOKEEPER)
    shrunk = controller.create("shrunk", (BROKER, FOLLOWER), unclean_leader_election_enable="true")
    controller.create("whole", (FOLLOWER, BROKER), unclean_leader_election_enable="true")
    controller.create("alone", (FOLLOWER,), unclean_leader_election_enable="true")
    controller.create("clean", (BROKER, FOLLOWER))
    controller.write(PartitionChangeRecord(0, shrunk, isr=(BROKER,)))

    def found() -> list[int | None]:
        return list(replaceable(controller.image, UncleanElections(controller.image, controller.context()).enabled))

    assert found() == [BROKER]
    sessions = taken_over(controller)
    sessions.no_grace(broker_id for broker_id in found() if broker_id is not None)
    answer(controller, SESSION_MS + 1)
    assert fenced(controller)
    assert found() == []
