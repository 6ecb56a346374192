"""Whatever the world keeps answering, the driver rests between two attempts: nothing spins on ZooKeeper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.driver import MigrationDriver
from migrator.migration.machine.guards import Standing
from migrator.migration.machine.readiness import ControllerSignals, Gap, Surroundings
from migrator.migration.machine.states import POLL_MS, State
from migrator.migration.machine.volatile_state import Identity
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import ZkMigrationState
from migrator.zookeeper.leadership import Claim
from migrator.zookeeper.znodes.controller import ControllerClaim
from migrator.zookeeper.znodes.migration import INITIAL_STATE, MigrationState
from tests.lanes import examples
from tests.migration.support.builders import CLUSTER_ID, CRC, broker, cluster, controller, standing, surroundings

EPOCH = 5
SECONDS = 60
COPIED = MigrationState(3002, 4, 1000, 4, CRC)
OTHERS = ControllerClaim(3002, 0, 4)
BROKERS = surroundings().brokers
CLAIM = Claim(zk_epoch=8, epoch_version=8, controller_version=1, migration_version=4, migration=INITIAL_STATE)
FAULT = Gap("/config/topics/a", "not JSON", "Mend it.")

Ticket = ev.Ticket
Answer = Callable[[Ticket], ev.Event]


def readiness(*brokers: int, ready: bool = True, holder: ControllerClaim | None = None) -> Answer:
    image = cluster([broker(number) for number in brokers], [controller(3001)])
    return lambda ticket: ev.ReadinessInputs(
        ticket, BROKERS, ControllerSignals({3001: ready}), image, 19, holder=holder
    )


def examined(shown: Standing, around: Surroundings | None = None) -> Answer:
    return lambda ticket: ev.Examined(ticket, shown, surroundings=around or surroundings(0))


ANSWERS: Mapping[type, tuple[Answer, ...]] = {
    ef.Examine: (
        lambda ticket: ev.Examined(ticket, None, "connection refused"),
        examined(standing()),
        examined(standing(), surroundings()),
        examined(standing(cluster_id="another")),
        examined(standing(controller=None)),
        examined(standing(controller=OTHERS)),
        examined(standing(controller=OTHERS, mark=COPIED, mark_in_log=4)),
    ),
    ef.ReadReadiness: (
        readiness(0),
        readiness(),
        readiness(0, ready=False),
        readiness(0, holder=OTHERS),
        lambda ticket: ev.ReadinessInputs(
            ticket, None, ControllerSignals({}), cluster([], []), 19, "connection refused"
        ),
    ),
    ef.DecodeAll: (
        lambda ticket: ev.DecodeResult(ticket, records=10),
        lambda ticket: ev.DecodeResult(ticket, (FAULT,)),
        lambda ticket: ev.DecodeResult(ticket, failure="the worker died"),
        lambda ticket: ev.DecodeResult(ticket, (FAULT,), holder=OTHERS),
    ),
    ef.TakeClaim: (
        lambda ticket: ev.ClaimResult(ticket, CLAIM),
        lambda ticket: ev.ClaimResult(ticket, None, "connection lost"),
    ),
    ef.ReleaseClaim: (
        lambda ticket: ev.ReleaseResult(ticket, released=True),
        lambda ticket: ev.ReleaseResult(ticket, released=False, reason="connection lost"),
    ),
    ef.StartCopy: (
        lambda ticket: ev.CopyDone(ticket, 10, CLAIM.epoch_version, CLAIM.controller_version, surroundings(0)),
        lambda ticket: ev.CopyDone(ticket, 10, CLAIM.epoch_version, CLAIM.controller_version, surroundings()),
        lambda ticket: ev.CopyDone(ticket, 10, CLAIM.epoch_version + 1, CLAIM.controller_version, surroundings(0)),
        lambda ticket: ev.CopyFailed(ticket, "the worker died"),
    ),
    ef.CompleteTransaction: (lambda ticket: ev.Committed(ticket, EpochOffset(EPOCH, 77)),),
    ef.AbortTransaction: (lambda ticket: ev.Committed(ticket, EpochOffset(EPOCH, 77)),),
    ef.Reconcile: (
        lambda ticket: ev.ReconcileDone(ticket, 3),
        lambda ticket: ev.ReconcileHeld(ticket, 9, 5, ("/brokers/topics/a",)),
        lambda ticket: ev.ReconcileFailed(ticket, "the worker died"),
    ),
    ef.SendFullRpcs: (ev.RpcsQueued,),
    ef.AuditZooKeeper: (
        lambda ticket: ev.AuditResult(ticket, ()),
        lambda ticket: ev.AuditResult(ticket, ("/brokers/topics/a",)),
        lambda ticket: ev.AuditResult(ticket, (), "connection lost"),
    ),
}
"""The possible results of each piece of work. A world gives one of these, at once, for as long as it lasts."""

WRITES: tuple[Callable[[], ev.Event] | None, ...] = (
    None,
    lambda: ev.WriteBehindFailed(EPOCH, fenced=True, reason="another controller took over"),
    lambda: ev.WriteBehindFailed(EPOCH, fenced=False, reason="somebody else wrote /migration"),
)
"""The result of the first write of each dual-writing."""

WORLDS = st.fixed_dictionaries({kind: st.sampled_from(answers) for kind, answers in ANSWERS.items()})


@settings(deadline=None, max_examples=examples(300))
@given(
    world=WORLDS,
    written=st.sampled_from(WRITES),
    record=st.sampled_from([ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION]),
)
def test_every_world_leaves_the_driver_time_to_rest(
    world: Mapping[type, Answer], written: Callable[[], ev.Event] | None, record: ZkMigrationState
) -> None:
    driver, now, asked = MigrationDriver(Identity(3001, CLUSTER_ID)), 0, Counter[str]()
    waiting: list[ev.Event] = [ev.BecameLeader(EPOCH, record, enabled=True, base=EpochOffset(4, 900))]
    timer: ef.ScheduleTimer | None = None
    while now < SECONDS * 1000:
        if waiting:
            event = waiting.pop(0)
        elif timer is not None:
            now, event = now + timer.delay_ms, ev.Timer(timer.ticket)
        else:
            break
        before = driver.state
        for effect in driver.step(event, now):
            if isinstance(effect, ef.ScheduleTimer):
                timer = effect
            elif (answer := world.get(type(effect))) is not None:
                asked[type(effect).__name__] += 1
                work: Any = effect
                waiting.append(answer(work.ticket))
        if written is not None and driver.state is State.DUAL_WRITING is not before:
            waiting.append(written())
        assert max(asked.values(), default=0) <= 20 + 2 * now / POLL_MS, (asked, now, driver.state)
