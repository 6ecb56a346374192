"""Every gate in every situation that it tells apart: open or shut, and whom it names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.config.keys import CONNECT, ROLES
from migrator.migration.machine.states import PublicState
from migrator.observe.status import ImagesStatus
from migrator.rollout.gates.excuses import excused
from migrator.rollout.gates.gatekeeper import said_of
from migrator.rollout.gates.gates import judge, unseen
from migrator.rollout.gates.placements import Placements
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.ports import (
    BrokerMode,
    BrokerSeen,
    Gate,
    GateKind,
    MigrationSeen,
    Observation,
    PartitionsSeen,
    Some,
)
from migrator.seeing.controllers import ControllerProgram, ControllerSeen, QuorumSeen

ZOOKEEPER, MIGRATING, KRAFT = BrokerMode.ZOOKEEPER, BrokerMode.MIGRATING, BrokerMode.KRAFT
OURS, STOCK = ControllerProgram.MIGRATOR, ControllerProgram.STOCK
B1 = Node("broker-1", NodeKind.BROKER, 1, "h", "/b1", "default", "", {})
B1, B2 = replace(B1, rack="r1"), replace(B1, name="broker-2", node_id=2, rack="r1")
C1 = Node("controller-1", NodeKind.CONTROLLER, 3001, "h", "/c1", "default", "", {})


def broker(
    mode: BrokerMode | None = ZOOKEEPER, *, serving: bool = True, stamp: str = "2", release: str = "3.9"
) -> BrokerSeen:
    return BrokerSeen(1, mode, stamp, serving, release)


def with_broker(seen: BrokerSeen) -> Observation:
    return replace(GOOD, brokers={1: seen})


def voter(
    node_id: int = 3001, program: ControllerProgram | None = OURS, *, on: bool | None = True, lag: int = 0
) -> ControllerSeen:
    return ControllerSeen(node_id, program, on, lag)


def with_voters(*voters: ControllerSeen, leader: int | None = 3002) -> Observation:
    return replace(GOOD, quorum=QuorumSeen(leader, {each.node_id: each for each in voters}))


def with_target(target: str | None) -> Observation:
    """Of a reassignment of the voters."""
    assert GOOD.quorum is not None
    return replace(GOOD, quorum=replace(GOOD.quorum, target=target))


def without_voter(seen: Observation, node_id: int) -> Observation:
    """The controller does not answer."""
    assert seen.quorum is not None
    gone = ControllerSeen(node_id, None)
    return replace(seen, quorum=replace(seen.quorum, voters={**seen.quorum.voters, node_id: gone}))


def with_partitions(
    offline: int = 0, under_replicated: int = 0, under_min_isr: int = 0, reassigning: int = 0
) -> Observation:
    one, two, three, four = (
        Some(count, ("orders-0",)) for count in (offline, under_replicated, under_min_isr, reassigning)
    )
    return replace(GOOD, partitions=PartitionsSeen(one, two, three, four))


def in_state(
    state: PublicState, lag: int = 0, foreign_writes: tuple[str, ...] = (), problems: tuple[str, ...] = ()
) -> Observation:
    return replace(GOOD, migration=MigrationSeen(state.label, lag, foreign_writes, problems))


def written(lag: int = 0, behind_ms: int = 0, problems: tuple[str, ...] = (), *, keeps_up: bool = True) -> Observation:
    state = PublicState.DUAL_WRITE.label
    seen = MigrationSeen(state, lag, problems=problems, keeps_up=keeps_up, behind_ms=behind_ms)
    return replace(GOOD, migration=seen)


GOOD = Observation(
    cluster_id="id",
    brokers={1: broker(), 2: replace(broker(), broker_id=2)},
    partitions=PartitionsSeen(),
    quorum=QuorumSeen(3002, {each: voter(each) for each in (3001, 3002, 3003)}, target=""),
    migration=MigrationSeen(PublicState.DUAL_WRITE.label, 0),
    controller_broker=1,
    zookeeper_answers=True,
)
NOTHING = Observation(unknown=("nobody answers",))
OPEN = ""

PARTITIONS = Gate(GateKind.PARTITIONS_HEALTHY)
QUORUM = Gate(GateKind.QUORUM_HEALTHY)
ALL_OURS = Gate(GateKind.QUORUM_HEALTHY, program=OURS)
SETTLED = Gate(GateKind.VOTERS_SETTLED)
OTHERS = Gate(GateKind.OTHERS_CAUGHT_UP, C1)
GONE = Gate(GateKind.BROKER_GONE, B1)
BACK = Gate(GateKind.BROKER_BACK, B1, ZOOKEEPER, broker(stamp="1"))
VOTERS, SECRET = "controller.quorum.voters", "zookeeper.ssl.keystore.password"
READ = replace(BACK, file={CONNECT: "zk:2181", VOTERS: "${env:VOTERS}", SECRET: "s3cr3t"})
IN_FILE = {CONNECT: "zk:2181", VOTERS: "3@h:1", SECRET: None}
CONTROLLER = Gate(GateKind.CONTROLLER_BACK, C1, program=OURS, migration_on=True)
MODE = Gate(GateKind.BROKERS_IN_MODE, mode=ZOOKEEPER)
MODES = replace(MODE, nodes=(B1, B2))
NO_KRAFT = Gate(GateKind.NONE_IN_KRAFT, nodes=(B1, B2))
DUAL = Gate(GateKind.MIGRATION_STATE, state=PublicState.DUAL_WRITE.label)
FINISHING = Gate(GateKind.FINISHING)
UNENDED = Gate(GateKind.NOT_FINISHED)
WRITTEN = Gate(GateKind.WRITE_BEHIND_IDLE)
KEEPS_UP = Gate(GateKind.LEADER_KEEPS_UP)
RAISED = Gate(GateKind.VERSIONS_RAISED)
BOTH = Gate(GateKind.BOTH_WRITTEN)
ALONE = Gate(GateKind.NO_FOREIGN_WRITES)
AGREE = Gate(GateKind.IMAGES_AGREE)
BROKERS_SEEN = Gate(GateKind.BROKERS_SEEN)
VOTER_SEEN = replace(CONTROLLER, kind=GateKind.VOTER_SEEN)
ZOOKEEPER_SEEN = Gate(GateKind.ZOOKEEPER_SEEN)
CLAIMED = Gate(GateKind.ZOOKEEPER_CONTROLLER)


def compared(different: tuple[int, ...] = (), unknown: tuple[int, ...] = ()) -> Observation:
    images = ImagesStatus(9, 1, (), different, unknown)
    return replace(GOOD, migration=MigrationSeen(PublicState.DUAL_WRITE.label, images=images))


MAY = Gate(GateKind.MAY_STOP, nodes=(B1, B2))
ALONE_MAY = Gate(GateKind.MAY_STOP, nodes=(B1,))
REST = Gate(GateKind.PARTITIONS_HEALTHY, nodes=(B1, B2))


def placed(replicas: set[int], in_sync: set[int], min_isr: int = 1, *, led: bool = True) -> Observation:
    found = Placements(placed=True)
    found.add("orders", 0, 1 if led else -1, tuple(replicas), tuple(in_sync), min_isr)
    return replace(GOOD, partitions=found.seen(Some()))


def with_each_its_own(asked: Gate) -> list[str]:
    """The message when one topic is offline, another out of sync, and a third is being moved and in sync."""
    found = Placements(placed=True)
    found.add("away", 0, -1, (2, 3), (), 1)
    found.add("late", 0, 1, (1, 2, 3), (1, 3), 2)
    found.add("well", 0, 1, (1, 2, 3), (1, 2, 3), 2)
    seen = replace(GOOD, partitions=found.seen(Some(1, ("well-0",))))
    return [each.what for each in judge(asked, seen) if each.who == "partitions"]


def test_each_count_has_its_own_examples() -> None:
    assert with_each_its_own(PARTITIONS) == [
        "1 offline (away-0)",
        "1 with fewer replicas in sync than min.insync.replicas (away-0)",
        "2 under-replicated (away-0, late-0)",
        "1 being reassigned (well-0)",
    ]
    assert with_each_its_own(REST)[0] == "1 offline (away-0)"


CASES: list[tuple[Gate, Observation, str]] = [
    (PARTITIONS, GOOD, OPEN),
    (PARTITIONS, NOTHING, "their state is unknown: nobody answers"),
    (PARTITIONS, with_partitions(offline=2), "2 offline (orders-0, ...)"),
    (PARTITIONS, with_partitions(under_replicated=3), "3 under-replicated"),
    (PARTITIONS, with_partitions(under_min_isr=1), "1 with fewer replicas in sync"),
    (PARTITIONS, with_partitions(reassigning=1), "1 being reassigned"),
    (PARTITIONS, with_broker(broker(serving=False)), "broker 1: is registered, but does not serve"),
    (PARTITIONS, with_broker(broker(None)), OPEN),
    (PARTITIONS, replace(GOOD, brokers=None), "which of them are registered is unknown"),
    (REST, with_broker(broker(serving=False)), OPEN),
    (REST, placed({1, 2, 3}, {3}), OPEN),
    (REST, placed({1, 2, 3}, {1, 2}), "1 under-replicated (orders-0)"),
    (REST, placed({1, 2}, {1}, led=False), "1 offline"),
    (REST, NOTHING, "their state is unknown"),
    (MAY, placed({1, 2, 3}, {1, 2, 3}, 1), OPEN),
    (MAY, placed({1, 3, 4}, {1, 3, 4}, 2), OPEN),
    (MAY, placed({1}, {1}, 1), OPEN),  # no order of restarts saves it
    (MAY, placed({1, 3}, {1, 3}, 2), OPEN),
    (MAY, placed({1, 2, 3}, {1, 2, 3}, 2), "1 partition would fall below min.insync.replicas: orders-0"),
    (MAY, placed({1, 2}, {1, 2}, 1), "1 partition would go offline: orders-0"),
    (MAY, placed({1, 2, 3}, {2, 3}, 2), "would fall below"),  # broker 1 is back, and not in sync yet
    (MAY, placed({1, 3, 4}, {1, 3}, 2), "would fall below"),
    (MAY, replace(GOOD, partitions=PartitionsSeen()), "which brokers have their replicas is unknown"),
    (MAY, NOTHING, "which brokers have their replicas is unknown"),
    (MAY, replace(placed({1}, {1}), brokers={1: replace(broker(), rack="r9")}), "its broker.rack is r9, and the inv"),
    (MAY, replace(placed({1}, {1}), brokers={1: replace(broker(), rack="r1")}), OPEN),
    (ALONE_MAY, replace(GOOD, partitions=PartitionsSeen()), OPEN),
    (ALONE_MAY, placed({1, 2, 3}, {1, 3}, 2), "without this broker, 1 partition would fall below"),
    (ALONE_MAY, placed({1, 2, 3}, {2, 3}, 2), OPEN),
    (QUORUM, GOOD, OPEN),
    (QUORUM, NOTHING, "no controller answers"),
    (QUORUM, with_voters(voter(), leader=None), "no controller leads"),
    (QUORUM, with_voters(voter(program=None)), "controller 3001: does not answer"),
    (QUORUM, with_voters(voter(lag=1)), "controller 3001: is 1 record behind"),
    (QUORUM, with_voters(voter(lag=-1)), "controller 3001: how far it is behind the leader is unknown"),
    (ALL_OURS, with_voters(voter(program=None)), "controller 3001: does not answer"),
    (ALL_OURS, with_voters(voter(program=STOCK)), "controller 3001: is Kafka, not this program"),
    (ALL_OURS, replace(with_voters(voter(program=STOCK)), migration=in_state(PublicState.FINISHED).migration), OPEN),
    (replace(OTHERS, program=STOCK), with_voters(voter()), "controller 3001: is this program, not Kafka"),
    (OTHERS, with_voters(voter(program=None), voter(3002)), OPEN),
    (OTHERS, with_voters(voter(lag=9), voter(3002)), OPEN),
    (OTHERS, with_voters(voter(), voter(3002, lag=9)), "controller 3002: is 9 records behind"),
    (OTHERS, with_voters(voter(), leader=None), "no controller leads"),
    (OTHERS, NOTHING, "no controller answers"),
    (SETTLED, with_target(""), OPEN),
    (SETTLED, with_target("4,5,6"), "a reassignment to 4,5,6 is under way"),
    (SETTLED, with_target(None), "whether they are being reassigned is unknown"),
    (GONE, replace(GOOD, brokers={}), OPEN),
    (GONE, with_broker(broker(None)), OPEN),
    (GONE, with_broker(broker(serving=False)), "broker-1: is still registered, in ZooKeeper mode"),
    (GONE, replace(GOOD, brokers=None), "whether it is registered is unknown"),
    (BACK, GOOD, OPEN),
    (replace(BACK, before=None), GOOD, OPEN),
    (replace(BACK, before=broker(None, stamp="", release="")), GOOD, OPEN),
    (BACK, with_broker(broker(stamp="1")), "has not been restarted"),
    (BACK, with_broker(broker(None)), "is not registered, or fenced"),
    (BACK, replace(GOOD, brokers={}), "is not registered, or fenced"),
    (BACK, with_broker(broker(KRAFT)), "runs in KRaft mode, not in ZooKeeper mode"),
    (BACK, with_broker(broker(serving=False)), "does not serve yet"),
    (BACK, with_broker(broker(release="3.8")), "with release 3.8; before its restart it had 3.9"),
    (BACK, with_broker(broker(release="")), OPEN),
    (BACK, replace(GOOD, brokers=None), "whether it has restarted is unknown"),
    (BACK, with_broker(replace(broker(), file={ROLES: "broker"})), OPEN),  # nobody has read its file
    (READ, with_broker(replace(broker(), file=None)), OPEN),
    (READ, with_broker(replace(broker(), file=IN_FILE)), OPEN),
    (READ, with_broker(replace(broker(), file={**IN_FILE, CONNECT: " zk:2181"})), OPEN),
    (READ, with_broker(replace(broker(), file={**IN_FILE, CONNECT: None})), OPEN),
    (READ, with_broker(replace(broker(), file={**IN_FILE, CONNECT: "other"})), f"with another value of {CONNECT}"),
    (READ, with_broker(replace(broker(), file={**IN_FILE, ROLES: "broker"})), f"still with {ROLES}"),
    (READ, with_broker(replace(broker(), file={CONNECT: "zk:2181", VOTERS: "3@h:1"})), f"without {SECRET}"),
    (READ, with_broker(replace(broker(KRAFT), file={})), "runs in KRaft mode"),
    (CONTROLLER, GOOD, OPEN),
    (CONTROLLER, NOTHING, "no controller says that it is a voter"),
    (CONTROLLER, with_voters(voter(3002)), "no controller says that it is a voter"),
    (CONTROLLER, with_voters(voter(program=None)), "does not answer"),
    (CONTROLLER, with_voters(voter(program=STOCK)), "is Kafka, not this program"),
    (CONTROLLER, with_voters(voter(on=False)), "its migration is off, not on"),
    (CONTROLLER, with_voters(voter(on=None)), "its migration is unknown, not on"),
    (CONTROLLER, with_voters(voter(lag=4)), "is 4 records behind"),
    (replace(CONTROLLER, program=None, migration_on=None), with_voters(voter(program=STOCK, on=None)), OPEN),
    (MODE, GOOD, OPEN),
    (MODE, NOTHING, "which brokers there are is unknown"),
    (MODE, replace(GOOD, brokers={}), "which brokers there are is unknown"),
    (MODE, with_broker(broker(KRAFT)), "broker 1: runs in KRaft mode, not in ZooKeeper mode"),
    (MODE, with_broker(broker(serving=False)), "broker 1: is registered, but does not serve yet"),
    (MODES, GOOD, OPEN),
    (MODES, with_broker(broker()), "broker-2: is not registered, or fenced"),
    (MODES, replace(GOOD, brokers={1: broker(), 2: broker(), 9: BrokerSeen(9, KRAFT)}), "broker 9: runs"),
    (MODES, NOTHING, "which brokers there are is unknown"),
    (MODES, replace(in_state(PublicState.FINISHED), brokers={1: broker()}), OPEN),
    (NO_KRAFT, GOOD, OPEN),
    (NO_KRAFT, NOTHING, "which of them are in KRaft mode is unknown"),
    (NO_KRAFT, with_broker(replace(broker(KRAFT), kraft_in_log=True)), "broker-1: is registered in KRaft mode"),
    (NO_KRAFT, replace(GOOD, brokers={9: BrokerSeen(9, None, kraft_in_log=True)}), "mode, and is not in the inv"),
    (DUAL, GOOD, OPEN),
    (DUAL, in_state(PublicState.FINISHED), OPEN),
    (DUAL, in_state(PublicState.MIGRATION_INELIGIBLE, problems=("b1: waits",)), "not yet in DualWrite: b1: waits"),
    (DUAL, in_state(PublicState.MIGRATE_ZK_DATA), "is in MigrateZkData, not yet in DualWrite"),
    (DUAL, NOTHING, "its state is unknown"),
    (DUAL, replace(GOOD, migration=MigrationSeen("Newer")), "its state is unknown"),
    (FINISHING, GOOD, "does not say that it asks the other controllers"),
    (FINISHING, NOTHING, "does not say that it asks the other controllers"),
    (FINISHING, replace(GOOD, migration=MigrationSeen("DualWrite", finishing=True)), OPEN),
    (KEEPS_UP, replace(GOOD, migration=MigrationSeen("DualWrite", 3, keeps_up=True)), OPEN),
    (KEEPS_UP, in_state(PublicState.DUAL_WRITE, lag=3), "is 3 records behind the log, and has been for seconds"),
    (KEEPS_UP, in_state(PublicState.DUAL_WRITE), "the leader was not yet seen to write"),
    (KEEPS_UP, in_state(PublicState.DUAL_WRITE, problems=("9 deletes: to be allowed",)), "and waits: 9 deletes: to be"),
    (KEEPS_UP, in_state(PublicState.MIGRATION_INELIGIBLE), OPEN),
    (RAISED, GOOD, OPEN),
    (RAISED, replace(GOOD, migration=MigrationSeen("DualWrite", 0, versions="5 sets are left")), "5 sets are left"),
    (BOTH, written(), OPEN),
    (BOTH, written(lag=500, behind_ms=9_000), OPEN),  # a leader under load is always some records behind
    (BOTH, written(lag=500, behind_ms=14_000), "is 500 records behind the log, and the oldest has waited for 14 s"),
    (BOTH, written(lag=2, behind_ms=-1), "lacks 2 records that the log had at the look before"),
    (BOTH, written(lag=0, behind_ms=-1), OPEN),
    (BOTH, written(problems=("ZooKeeper: it is out of reach: refused",)), "controller says: it is out of reach"),
    (BOTH, written(problems=("topic a: too large",)), OPEN),
    (BOTH, replace(written(), zookeeper_answers=False), "ZooKeeper: does not answer"),
    (BOTH, written(keeps_up=False), "the leader was not yet seen to write"),
    (BOTH, in_state(PublicState.MIGRATE_ZK_DATA), "migration: is in MigrateZkData, not in DualWrite"),
    (BOTH, replace(in_state(PublicState.FINISHED), zookeeper_answers=False), OPEN),
    (BOTH, NOTHING, "its state is unknown"),
    (FINISHING, in_state(PublicState.FINISHED), OPEN),
    (UNENDED, GOOD, OPEN),
    (UNENDED, NOTHING, OPEN),
    (UNENDED, in_state(PublicState.FINISHED), "is finished: ZooKeeper gets no changes"),
    (WRITTEN, GOOD, OPEN),
    (WRITTEN, in_state(PublicState.DUAL_WRITE, lag=7), "is 7 records behind the log"),
    (WRITTEN, in_state(PublicState.DUAL_WRITE, lag=-1), "how far it is behind the log is unknown"),
    (WRITTEN, replace(GOOD, migration=None), "how far it is behind the log is unknown"),
    (WRITTEN, replace(GOOD, zookeeper_answers=False), "does not answer"),
    (WRITTEN, replace(in_state(PublicState.FINISHED, lag=-1), zookeeper_answers=False), OPEN),
    (replace(WRITTEN, program=STOCK), in_state(PublicState.DUAL_WRITE, lag=-1), OPEN),
    (replace(WRITTEN, program=STOCK), in_state(PublicState.DUAL_WRITE, lag=3), "is 3 records behind the log"),
    (replace(WRITTEN, program=STOCK), replace(GOOD, migration=None), "how far it is behind the log is unknown"),
    (ALONE, GOOD, OPEN),
    (ALONE, replace(GOOD, migration=None), OPEN),
    (ALONE, in_state(PublicState.DUAL_WRITE, foreign_writes=("/config/a",)), "have written to it: /config/a"),
    (CLAIMED, GOOD, OPEN),
    (CLAIMED, replace(GOOD, controller_broker=None), "none is the ZooKeeper controller"),
    (CLAIMED, replace(GOOD, zookeeper_answers=False), "does not answer"),
    (BROKERS_SEEN, replace(GOOD, controller_broker=None), OPEN),
    (BROKERS_SEEN, replace(GOOD, brokers=None), OPEN),  # a broker is the ZooKeeper controller: none is in KRaft mode
    (BROKERS_SEEN, NOTHING, "which of them are registered is unknown: nobody answers"),
    (VOTER_SEEN, with_voters(voter(on=False), leader=None), OPEN),
    (VOTER_SEEN, with_voters(voter(on=None)), "does not say whether it has the migration on"),
    (VOTER_SEEN, NOTHING, "does not say whether it has the migration on: nobody answers"),
    (ZOOKEEPER_SEEN, replace(GOOD, controller_broker=None), OPEN),
    (ZOOKEEPER_SEEN, replace(in_state(PublicState.FINISHED), zookeeper_answers=False), OPEN),
    (ZOOKEEPER_SEEN, NOTHING, "does not answer"),
    (AGREE, GOOD, OPEN),
    (AGREE, compared(unknown=(3001, 3003)), OPEN),
    (AGREE, compared((3003,)), "quorum: the controllers disagree at offset 9: controller 3003 has other metadata"),
    (AGREE, excused(compared((3003,)), [C1], {}), "controller 3003 has"),
    (AGREE, excused(without_voter(compared((C1.node_id,)), C1.node_id), [C1], {}), OPEN),
]  # fmt: skip


@pytest.mark.parametrize(("gate", "seen", "said"), CASES, ids=lambda case: case if isinstance(case, str) else "")
def test_a_gate_is_open_or_says_who_and_why(gate: Gate, seen: Observation, said: str) -> None:
    waiting = judge(gate, seen)
    if said == OPEN:
        assert waiting == ()
        return
    assert [each for each in waiting if said in f"{each.who}: {each.what}"], waiting
    assert all(each.who and each.what and each.remedy for each in waiting)


def test_every_gate_is_seen_open_and_shut() -> None:
    opened = {gate.kind for gate, _, said in CASES if said == OPEN}
    shut = {gate.kind for gate, _, said in CASES if said != OPEN}
    assert opened == shut == set(GateKind)


BLIND = [
    replace(GOOD, brokers=None),
    replace(GOOD, partitions=None),
    replace(GOOD, quorum=None),
    replace(GOOD, migration=None),
    replace(GOOD, controller_broker=None),
    Observation(),
]


@pytest.mark.parametrize("seen", BLIND)
def test_what_nobody_saw_opens_no_gate(seen: Observation) -> None:
    needed = {
        GateKind.PARTITIONS_HEALTHY: seen.partitions,
        GateKind.MAY_STOP: seen.partitions,
        GateKind.QUORUM_HEALTHY: seen.quorum,
        GateKind.OTHERS_CAUGHT_UP: seen.quorum,
        GateKind.VOTERS_SETTLED: seen.quorum,
        GateKind.BROKER_GONE: seen.brokers,
        GateKind.BROKER_BACK: seen.brokers,
        GateKind.CONTROLLER_BACK: seen.quorum,
        GateKind.BROKERS_IN_MODE: seen.brokers,
        GateKind.NONE_IN_KRAFT: seen.brokers,
        GateKind.MIGRATION_STATE: seen.migration,
        GateKind.WRITE_BEHIND_IDLE: seen.migration,
        GateKind.BOTH_WRITTEN: seen.migration,
        GateKind.ZOOKEEPER_CONTROLLER: seen.controller_broker,
    }
    for gate, _, _ in CASES:
        if gate.kind in needed and needed[gate.kind] is None:
            assert judge(gate, seen), gate.kind


@pytest.mark.parametrize("key", [CONNECT, ROLES, VOTERS, SECRET])
def test_a_gate_about_settings_says_no_value(key: str) -> None:
    told = judge(READ, with_broker(replace(broker(), file={key: "v4lue-of-the-broker"})))
    assert told
    assert not [text for text in ("v4lue", "zk:2181", "s3cr3t", "env:") if text in str(told)]


def test_what_an_open_gate_could_not_look_at_is_said() -> None:
    hidden = with_broker(replace(broker(), hidden="CLUSTER_AUTHORIZATION_FAILED"))
    (refused,) = unseen(READ, hidden)
    what = "could not be looked at (CLUSTER_AUTHORIZATION"
    assert refused.startswith(f"broker-1: the mode and the settings that it runs with {what}")
    (refused,) = unseen(READ, with_broker(replace(broker(MIGRATING), hidden="CLUSTER_AUTHORIZATION_FAILED")))
    assert refused.startswith(f"broker-1: the settings that it runs with {what}"), "the quorum has it registered"
    (kept,) = unseen(READ, with_broker(replace(broker(), file=IN_FILE)))
    assert kept == f"broker-1: does not show the values of {VOTERS}, {SECRET}: only that they are set was seen"
    assert not list(unseen(BACK, hidden))
    assert not list(unseen(PARTITIONS, hidden))
    (stock,) = unseen(AGREE, compared(unknown=(3001, 3003)))
    assert stock.startswith("whether the metadata of controllers 3001, 3003 are those of the leader is not known")
    (nobody,) = unseen(AGREE, GOOD)
    assert nobody.endswith("no leader has compared them")
    assert not list(unseen(AGREE, compared()))
    assert not list(unseen(AGREE, in_state(PublicState.FINISHED)))


def test_many_names_are_cut_short() -> None:
    seen = in_state(PublicState.DUAL_WRITE, foreign_writes=tuple(f"/p{number}" for number in range(12)))
    (waiting,) = judge(ALONE, seen)
    assert waiting.what.endswith("/p4, and 7 more")


def test_a_reason_is_said_once() -> None:
    """No controller answers: two gates wait, and both know why."""
    why = "no controller answers: no connection to c1:9093"
    gates = (Gate(GateKind.QUORUM_HEALTHY), Gate(GateKind.MIGRATION_STATE, state="DualWrite"))
    seen = Observation(unknown=(why,))
    for asked in (gates, gates[::-1]):
        said = said_of([waiting for gate in asked for waiting in judge(gate, seen)])
        assert said.count("no connection to c1:9093") == 1
        assert "no controller answers: no controller answers" not in said
        assert "quorum: no controller answers" in said
        assert "migration: its state is unknown" in said
