"""No broker stops before the quorum's leader is seen to tell ZooKeeper, and the brokers beside it, what is committed.

Kafka's leader does neither while it compares ZooKeeper with the log: behind the copy, and whenever another one leads. A
partition whose leader moves meanwhile has none for the brokers in ZooKeeper mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.image.model import EMPTY_IMAGE
from migrator.migration.machine.states import PublicState
from migrator.records.metadata import ZkMigrationState
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.gates.gates import judge
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import Gate, GateKind, MigrationSeen, Observation
from migrator.rollout.seeing.leader_says import LeaderSays
from migrator.rollout.seeing.observer import migration_seen
from migrator.rollout.seeing.zookeeper import ZooKeeperLook
from migrator.seeing.quorum import QuorumLook
from migrator.seeing.stock_leader import BEHIND_SECONDS, CommittedBefore, StockLeader
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

WRITTEN, KEEPS_UP = Gate(GateKind.WRITE_BEHIND_IDLE), Gate(GateKind.LEADER_KEEPS_UP)
COPIED = 5000
"""Offset of the copy's end."""
DUAL_WRITE = PublicState.DUAL_WRITE


class Stock:
    """A rollout that looks at Kafka's controllers again and again."""

    def __init__(self) -> None:
        self._leader = StockLeader()

    def sees(
        self, offset: int, of_epoch: int, before: int, *, leads: int = 1, state: PublicState = DUAL_WRITE
    ) -> MigrationSeen:
        """:param before: committed at the look before."""
        look = ZooKeeperLook({}, written_offset=offset, written_epoch=of_epoch)
        quorum = QuorumLook(None, None, before, committed_earlier=before, leader_epoch=leads)
        seen = migration_seen(look, quorum, None, state, stock=self._leader)
        assert seen is not None
        return seen


def is_open(gate: Gate, seen: MigrationSeen) -> bool:
    return not judge(gate, Observation(migration=seen, zookeeper_answers=True))


def test_the_first_look_behind_the_copy_proves_nothing() -> None:
    """`/migration` has the offset of the copy's end, and what was committed before is from before the copy."""
    stock = Stock()
    stock.sees(-1, -1, 100, state=PublicState.MIGRATION_INELIGIBLE)
    seen = stock.sees(COPIED, 1, COPIED - 3)
    assert seen.write_behind_lag == -1
    assert not is_open(WRITTEN, seen)
    assert not is_open(KEEPS_UP, seen)


def test_it_is_seen_to_write_as_its_offset_moves() -> None:
    stock = Stock()
    for before in (COPIED - 3, COPIED + 1, COPIED + 9):  # it compares
        seen = stock.sees(COPIED, 1, before)
        assert not is_open(WRITTEN, seen)
        assert not is_open(KEEPS_UP, seen)
    assert seen.write_behind_lag == 8
    seen = stock.sees(COPIED + 12, 1, COPIED + 12)
    assert seen.write_behind_lag == 0
    assert is_open(WRITTEN, seen)
    assert is_open(KEEPS_UP, seen)


def test_another_leader_begins_anew() -> None:
    stock = Stock()
    stock.sees(COPIED, 1, COPIED)
    assert is_open(KEEPS_UP, stock.sees(COPIED + 20, 1, COPIED + 20))
    assert not is_open(KEEPS_UP, stock.sees(COPIED + 20, 1, COPIED + 20, leads=2))
    late = stock.sees(COPIED + 22, 1, COPIED + 22, leads=2)
    assert not is_open(KEEPS_UP, late), "the leader before has written that"
    assert not is_open(WRITTEN, late)
    assert is_open(KEEPS_UP, stock.sees(COPIED + 30, 2, COPIED + 30, leads=2))


@pytest.mark.parametrize("offset", [-1, COPIED])
def test_a_leader_or_a_mark_that_nobody_sees_proves_nothing(offset: int) -> None:
    stock = Stock()
    assert not is_open(KEEPS_UP, stock.sees(offset, 1, COPIED, leads=-1))
    assert not is_open(KEEPS_UP, stock.sees(-1, -1, COPIED))
    assert not is_open(KEEPS_UP, stock.sees(COPIED, 1, COPIED)), "the first mark of this leader"


def under_load(written: Callable[[int], int]) -> list[MigrationSeen]:
    """100 looks, ten of them in the time that a leader may be behind; 40 records are committed between two.

    :param written: offset in `/migration`, by look.
    """
    leader, earlier, found = StockLeader(), CommittedBefore(), []
    for look in range(100):
        committed = COPIED + 40 * look
        at = ZooKeeperLook({}, written_offset=written(look), written_epoch=1)
        some_seconds_ago = earlier.look(look * BEHIND_SECONDS / 10, committed)
        quorum = QuorumLook(None, None, committed, committed_earlier=some_seconds_ago, leader_epoch=1)
        seen = migration_seen(at, quorum, None, DUAL_WRITE, stock=leader)
        assert seen is not None
        found.append(seen)
    return found


def test_a_leader_under_load_is_never_exactly_there_and_keeps_up_nevertheless() -> None:
    """Records of this moment are not written yet; those of some seconds ago are."""
    found = under_load(lambda look: COPIED + 40 * look - 30)
    assert {seen.write_behind_lag for seen in found} == {29}
    assert [is_open(KEEPS_UP, seen) for seen in found] == [False] * 10 + [True] * 90


def test_who_falls_behind_more_and_more_does_not_keep_up() -> None:
    found = under_load(lambda look: COPIED + look)
    assert not [seen for seen in found[20:] if is_open(KEEPS_UP, seen)]


def test_versions_are_waited_for_before_the_controllers_stop_and_not_before_a_broker(tmp_path: Path) -> None:
    """Behind the last controller nobody rules until 'migrator rollback' has raised the rest."""
    operator = operator_at(tmp_path, "migrator", StopAt(step="kraft/broker-2"))
    observe, left = operator.cluster.observe, "versions are being raised: 5 sets are left"
    clock, bound_ms, raised_ms = operator.clock, int(operator.cluster.inventory.times.gate * 1000), -1

    async def behind(*, partitions: bool = True) -> Observation:
        seen, count = await observe(partitions=partitions), 5 if raised_ms < 0 else max(0, raised_ms - clock.now_ms)
        versions = left if count else ""
        return replace(
            seen, migration=seen.migration and replace(seen.migration, versions=versions, versions_left=count)
        )

    operator.cluster.observe = behind  # type: ignore[method-assign]
    with pytest.raises(GateTimeoutError, match=left) as waited:
        operator.rollback()
    assert waited.value.where == "drain"
    raised_ms = clock.now_ms + 3 * bound_ms  # longer than a gate may stay shut, and the count falls
    assert operator.rollback() is Ending.COMPLETE
    assert clock.now_ms >= raised_ms


@pytest.mark.parametrize("is_told", [False, True])
def test_versions_are_not_raised_as_long_as_no_leader_says_so(*, is_told: bool) -> None:
    """ZooKeeper's mark says nothing of them."""
    image = replace(EMPTY_IMAGE, features=replace(EMPTY_IMAGE.features, zk_migration_state=ZkMigrationState.MIGRATION))
    says = LeaderSays("c", 5, DUAL_WRITE.label, "dual-writing", 0, (), ())
    seen = migration_seen(
        ZooKeeperLook({}, written_offset=9), QuorumLook(None, image, 9), says if is_told else None, DUAL_WRITE
    )
    assert seen is not None
    assert is_open(WRITTEN, seen)
    assert is_open(Gate(GateKind.VERSIONS_RAISED), seen) is is_told


def operator_at(tmp_path: Path, kind: str, until: StopAt) -> Operator:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory(kind=kind, handover=False)), tmp_path / "state")
    assert operator.apply(until) in (Ending.REACHED, Ending.PAUSED)
    return operator


def stops_nobody(operator: Operator, said: str) -> None:
    before = operator.cluster.restarts.copy()
    with pytest.raises(GateTimeoutError, match=said):
        operator.resume()
    assert operator.cluster.restarts == before


def test_a_stock_leader_that_is_behind_stops_no_broker(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, "stock", StopAt(step="kraft/broker-1"))
    operator.cluster.lag = 5
    stops_nobody(operator, "ZooKeeper: is 5 records behind the log, and has been for seconds")
    operator.cluster.lag = 0
    assert operator.resume() is Ending.COMPLETE


@pytest.mark.parametrize("kind", ["stock", "migrator"])
@pytest.mark.parametrize("step", ["kraft/broker-1", "migrate/broker-1"])
def test_a_leader_that_compares_first_stops_no_broker(tmp_path: Path, kind: str, step: str) -> None:
    operator = operator_at(tmp_path, kind, StopAt(step=step))
    operator.cluster.leader_writes = False
    if step == "migrate/broker-1":
        operator.cluster.state = DUAL_WRITE.label  # somebody else has copied, and a broker is left over
    stops_nobody(operator, "the leader was not yet seen to write what is committed")


@pytest.mark.parametrize("kind", ["stock", "migrator"])
def test_nor_on_the_way_back(tmp_path: Path, kind: str) -> None:
    operator = operator_at(tmp_path, kind, StopAt(Phase.KRAFT))
    operator.cluster.leader_writes = False
    before = operator.cluster.restarts.copy()
    with pytest.raises(GateTimeoutError, match="the leader was not yet seen to write what is committed"):
        operator.rollback()
    assert operator.cluster.restarts == before
    operator.cluster.leader_writes = True
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_our_leader_tells_the_brokers_whether_zookeeper_is_behind_or_not(tmp_path: Path) -> None:
    """A cluster under constant load is restarted all the same, up to the end, which asks for all."""
    operator = operator_at(tmp_path, "migrator", StopAt(Phase.COPY))
    operator.cluster.lag = 3
    assert operator.apply(StopAt(Phase.KRAFT)) is Ending.REACHED


def test_before_the_copy_there_is_nothing_to_keep_up_with() -> None:
    assert is_open(KEEPS_UP, MigrationSeen(PublicState.MIGRATION_INELIGIBLE.label))
    assert is_open(KEEPS_UP, MigrationSeen(PublicState.FINISHED.label))
    blind = replace(Observation(migration=MigrationSeen(DUAL_WRITE.label)), unknown=("ZooKeeper: away",))
    (waiting,) = judge(KEEPS_UP, blind)
    assert "ZooKeeper: away" in waiting.what
