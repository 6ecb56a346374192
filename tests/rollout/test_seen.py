"""Modes, registrations and lag, from the answers of ZooKeeper, quorum and brokers; and unknown values."""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from kio.schema.errors import ErrorCode

from migrator.cli.status import to_json
from migrator.errors import PeerError
from migrator.image.model import (
    EMPTY_IMAGE,
    BrokerRegistration,
    ConfigResource,
    MetadataImage,
    PartitionRegistration,
    Provenance,
    TopicImage,
    TopicsImage,
)
from migrator.migration.machine.states import PublicState, State
from migrator.observe.printable import json_text
from migrator.observe.status import (
    FOREIGN_WRITES,
    ImagesStatus,
    MigrationStatus,
    NodeRole,
    Problem,
    QuorumStatus,
    Status,
    WriteBehindStatus,
)
from migrator.observe.status_page import Answers
from migrator.records.uuid import Uuid
from migrator.rollout.gates.gates import judge
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.phases import BACK
from migrator.rollout.plan.steps import Phase, Sight
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
from migrator.rollout.seeing.brokers import PartitionSeen, SettingsAnswer, of_image, partitions_in
from migrator.rollout.seeing.leader_says import of_json, of_status
from migrator.rollout.seeing.observer import brokers_seen, migration_seen, min_isr_of, whole
from migrator.rollout.seeing.zookeeper import RegisteredBroker, ZooKeeperLook
from migrator.seeing.controllers import QuorumSeen
from migrator.seeing.quorum import QuorumLook
from migrator.wire.encode import encode_entity
from migrator.wire.schemas import METADATA, build, response_type

ZOOKEEPER, MIGRATING, KRAFT = BrokerMode.ZOOKEEPER, BrokerMode.MIGRATING, BrokerMode.KRAFT
FLAG_ON = {"zookeeper.metadata.migration.enable": "true"}
FLAG_OFF = {"zookeeper.metadata.migration.enable": "false"}
IN_KRAFT = {"process.roles": "broker"}
NO_QUORUM = QuorumLook(None, None, -1)
LED = QuorumSeen(3001, {})
AWAY = ZooKeeperLook()
EMPTY = ZooKeeperLook({})


def registered(*, migrating: bool = False, fenced: bool = False, stops: bool = False) -> QuorumLook:
    """Broker 1 in the log."""
    broker = BrokerRegistration(1, 77, Uuid(bytes([1]) * 16), migrating, (), (), None, fenced, stops, ())
    return QuorumLook(LED, with_brokers(broker), 100)


def with_brokers(*brokers: BrokerRegistration) -> MetadataImage:
    cluster = replace(EMPTY_IMAGE.cluster, brokers=Map({each.broker_id: each for each in brokers}))
    return replace(EMPTY_IMAGE, provenance=Provenance(9, 1, 1), cluster=cluster)


HAS_ZNODE = ZooKeeperLook({1: RegisteredBroker(5, ())}, written_offset=98)
CLAIMED = replace(HAS_ZNODE, brokers={}, quorum_rules=True)
LEADERLESS = QuorumLook(QuorumSeen(None, {}), None, -1, ("no controller leads the quorum",))
BLANK = QuorumLook(LED, None, -1)

CASES = [
    (HAS_ZNODE, NO_QUORUM, FLAG_OFF, (ZOOKEEPER, "zookeeper:5", True)),
    (HAS_ZNODE, NO_QUORUM, None, (ZOOKEEPER, "zookeeper:5", False)),
    (HAS_ZNODE, NO_QUORUM, FLAG_ON, (MIGRATING, "zookeeper:5", True)),
    (HAS_ZNODE, BLANK, FLAG_ON, (MIGRATING, "zookeeper:5", False)),
    (HAS_ZNODE, registered(migrating=True), FLAG_ON, (MIGRATING, "zookeeper:5", True)),
    (HAS_ZNODE, registered(migrating=True, fenced=True), FLAG_ON, (MIGRATING, "zookeeper:5", False)),
    (HAS_ZNODE, registered(migrating=True, stops=True), FLAG_ON, (MIGRATING, "zookeeper:5", False)),
    (HAS_ZNODE, registered(fenced=True), FLAG_ON, (MIGRATING, "zookeeper:5", False)),
    (HAS_ZNODE, registered(fenced=True), FLAG_OFF, (ZOOKEEPER, "zookeeper:5", True)),
    (EMPTY, registered(), IN_KRAFT, (KRAFT, "quorum:77", True)),
    (EMPTY, registered(), None, (KRAFT, "quorum:77", False)),
    (EMPTY, registered(stops=True), IN_KRAFT, (KRAFT, "quorum:77", False)),
    (EMPTY, registered(fenced=True), None, (None, "", False)),
    (EMPTY, registered(migrating=True), FLAG_ON, (MIGRATING, "quorum:77", False)),
    (EMPTY, NO_QUORUM, None, None),
    (EMPTY, BLANK, None, None),
]


@pytest.mark.parametrize(("zookeeper", "quorum", "settings", "expected"), CASES)
def test_a_broker_is_seen_as_it_runs(
    zookeeper: ZooKeeperLook,
    quorum: QuorumLook,
    settings: dict[str, str] | None,
    expected: tuple[BrokerMode | None, str, bool] | None,
) -> None:
    answers = {} if settings is None else {1: SettingsAnswer(settings, "3.9")}
    seen = brokers_seen(zookeeper, quorum, answers, is_finished=False)
    assert seen is not None
    found = seen.get(1)
    assert (None if found is None else (found.mode, found.registration, found.serving)) == expected


def test_settings_that_may_not_be_seen_leave_the_registration() -> None:
    answers = {1: SettingsAnswer(None, "")}
    for quorum, mode in ((registered(migrating=True), MIGRATING), (NO_QUORUM, ZOOKEEPER)):
        seen = brokers_seen(HAS_ZNODE, quorum, answers, is_finished=False)
        assert seen is not None
        assert (seen[1].mode, seen[1].serving) == (mode, True)
        assert seen[1].may_migrate is (quorum is NO_QUORUM), "in migration mode it is registered in ZooKeeper, too"


@pytest.mark.parametrize(
    ("zookeeper", "quorum", "finished"),
    [
        (AWAY, registered(), False),
        (AWAY, NO_QUORUM, False),
        (AWAY, NO_QUORUM, True),
        (EMPTY, LEADERLESS, False),
        (HAS_ZNODE, LEADERLESS, False),
        (CLAIMED, NO_QUORUM, False),
    ],
)
def test_a_broker_that_may_serve_unseen_never_passes_for_one_that_is_down(
    zookeeper: ZooKeeperLook, quorum: QuorumLook, *, finished: bool
) -> None:
    seen = Observation(brokers=brokers_seen(zookeeper, quorum, {}, is_finished=finished))
    node = Node("broker-1", NodeKind.BROKER, 1, "h", "/f", "default", "", {})
    assert not seen.is_down(node)


def test_after_the_end_zookeeper_may_be_away() -> None:
    seen = brokers_seen(AWAY, registered(), {1: SettingsAnswer(IN_KRAFT, "3.9")}, is_finished=True)
    there = BrokerSeen(1, KRAFT, "quorum:77", serving=True, release="3.9", settings=IN_KRAFT, kraft_in_log=True)
    assert seen == {1: there}


@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.parametrize("migrating", [True, False])
def test_a_registration_in_kraft_mode_counts_also_if_the_broker_is_fenced(*, fenced: bool, migrating: bool) -> None:
    look = replace(HAS_ZNODE, brokers={})
    seen = brokers_seen(look, registered(migrating=migrating, fenced=fenced), {}, is_finished=False)
    assert seen is not None
    assert seen[1].kraft_in_log is not migrating


def status(internal: State, lag: int | None = 0, *problems: Problem) -> Status:
    behind = None if lag is None else WriteBehindStatus(lag, 0, 0, 0)
    return Status(
        cluster_id="id",
        node_id=3001,
        version="1",
        time_ms=0,
        quorum=QuorumStatus(NodeRole.LEADER, 3001, 1, 0, 0, 0),
        migration=MigrationStatus(internal.properties.public.label, internal.value, 0, active=True),
        problems=problems,
        write_behind=behind,
    )


@pytest.mark.parametrize(
    ("zookeeper", "quorum", "told", "lag"),
    [
        (HAS_ZNODE, registered(), None, 1),
        (replace(HAS_ZNODE, written_offset=99), registered(), None, 0),
        (replace(HAS_ZNODE, written_offset=150), registered(), None, 0),
        (replace(HAS_ZNODE, written_offset=-1), registered(), None, -1),
        (AWAY, registered(), None, -1),
        (HAS_ZNODE, replace(registered(), committed_before=-1), None, -1),
        (HAS_ZNODE, registered(), status(State.DUAL_WRITING, 0), 0),
        (HAS_ZNODE, registered(), status(State.DUAL_WRITING, 12), 12),
        (HAS_ZNODE, registered(), status(State.DUAL_WRITING, -1), -1),
        (HAS_ZNODE, registered(), status(State.RECONCILING, 0), -1),
        (HAS_ZNODE, registered(), status(State.INFORMING_BROKERS, 0), -1),
        (HAS_ZNODE, registered(), status(State.HOLDING, 0), -1),
        (HAS_ZNODE, registered(), status(State.FINISHING, 3), 3),
        (HAS_ZNODE, registered(), status(State.DUAL_WRITING, None), 1),
    ],
)
def test_the_lag_is_what_zookeeper_lacks_or_unknown(
    zookeeper: ZooKeeperLook, quorum: QuorumLook, told: Status | None, lag: int
) -> None:
    says = None if told is None else of_status(told)
    seen = migration_seen(zookeeper, quorum, says, PublicState.DUAL_WRITE)
    assert seen is not None
    assert seen.write_behind_lag == lag


def test_problems_and_foreign_writes_are_told_apart() -> None:
    told = status(
        State.DUAL_WRITING,
        0,
        Problem("migration", f"{FOREIGN_WRITES}/config/topics/a, /controller", "r", warning=True),
        Problem("broker 1", "waits", "r"),
        Problem("broker 2", "is slow", "r", warning=True),
    )
    seen = migration_seen(HAS_ZNODE, registered(), of_status(told), PublicState.DUAL_WRITE)
    assert seen is not None
    assert seen.foreign_writes == ("/config/topics/a", "/controller")
    assert seen.problems == ("broker 1: waits",)


@pytest.mark.parametrize("state", State)
def test_only_a_leader_that_finishes_waits_for_an_order(state: State) -> None:
    seen = migration_seen(HAS_ZNODE, registered(), of_status(status(state, None)), PublicState.DUAL_WRITE)
    assert seen is not None
    assert seen.finishing is (state is State.FINISHING)


def test_the_command_says_what_the_controller_says() -> None:
    told = status(State.DUAL_WRITING, 4, Problem("migration", f"{FOREIGN_WRITES}/a", "r", warning=True))
    images = ImagesStatus(9, 1, (1,), (2,), (3,))
    for each in (
        told,
        replace(told, images=images),
        status(State.WAITING_FOR_BROKERS, None, Problem("broker 1", "waits", "r")),
    ):
        content = orjson.loads(json_text(to_json(Answers(best=each, asked=each))))
        assert of_json(content) == of_status(each) is not None


@pytest.mark.parametrize("content", [None, [], {}, {"quorum": {}}, {"quorum": {"leader_id": 1}, "node_id": 1}, "x", 1])
def test_what_is_no_status_says_nothing(content: object) -> None:
    assert of_json(content) is None


def test_a_follower_says_nothing() -> None:
    told = replace(status(State.DUAL_WRITING), node_id=3002)
    assert of_status(told) is None
    assert of_json(orjson.loads(json_text(to_json(Answers(best=told, asked=told))))) is None


def test_nobody_who_knows_no_migration() -> None:
    assert migration_seen(HAS_ZNODE, NO_QUORUM, None, None) is None


def in_order(some: Some) -> Some:
    return Some(some.count, tuple(sorted(some.names)))


def test_partitions_of_the_log() -> None:
    def partition(leader: int, isr: tuple[int, ...], adding: tuple[int, ...] = ()) -> PartitionRegistration:
        return PartitionRegistration(
            (1, 2, 3), isr, (), adding, leader, recovering=False, leader_epoch=1, partition_epoch=1
        )

    topics = {
        Uuid(bytes([1]) * 16): TopicImage(
            "a", Uuid(bytes([1]) * 16), {0: partition(1, (1, 2, 3)), 1: partition(1, (1, 2)), 2: partition(-1, (1,))}
        ),
        Uuid(bytes([2]) * 16): TopicImage("b", Uuid(bytes([2]) * 16), {0: partition(1, (1, 2), adding=(4,))}),
    }
    image = replace(
        EMPTY_IMAGE,
        topics=TopicsImage(Map(topics), Map({"a": Uuid(bytes([1]) * 16), "b": Uuid(bytes([2]) * 16)})),
        configs=Map({ConfigResource(2, "b"): {"min.insync.replicas": "3"}}),
    )
    for least, below in ((2, ("a-2", "b-0")), (1, ("b-0",))):
        seen = of_image(image, least)
        assert seen.offline == Some(1, ("a-2",))
        # topics come in the order of the hashes of their ids, which is another one in each process
        assert in_order(seen.under_replicated) == Some(3, ("a-1", "a-2", "b-0"))
        assert in_order(seen.under_min_isr) == Some(len(below), below)
        assert seen.reassigning == Some(1, ("b-0",))
        assert sum(each.count for each in seen.placements) == 3
        assert sum(each.count for each in of_image(image, least, placed=True).placements) == 4


@pytest.mark.parametrize("text", ["", "two", "-1", "1.5", "9" * 5000])
def test_what_is_no_number_of_replicas_counts_as_the_brokers_own(text: str) -> None:
    one = Uuid(bytes([1]) * 16)
    partition = PartitionRegistration((1, 2), (1,), (), (), 1, recovering=False, leader_epoch=1, partition_epoch=1)
    image = replace(
        EMPTY_IMAGE,
        topics=TopicsImage(Map({one: TopicImage("a", one, {0: partition})}), Map({"a": one})),
        configs=Map({ConfigResource(2, "a"): {"min.insync.replicas": text}}),
    )
    assert [of_image(image, least).under_min_isr.count for least in (1, 2)] == [0, 1]


def test_topics_that_the_login_may_not_describe_keep_the_gate_shut() -> None:
    assert whole(PartitionsSeen(topics=3), 3) == PartitionsSeen(topics=3)
    assert whole(PartitionsSeen(topics=4), 3) == PartitionsSeen(topics=4), "one is new"
    assert whole(PartitionsSeen(), 3) == PartitionsSeen(), "of the log"
    hidden = whole(PartitionsSeen(topics=2), 3)
    assert isinstance(hidden, str)
    assert hidden.startswith("the login of 'access' sees 2 of 3 topics")
    (waiting,) = judge(Gate(GateKind.PARTITIONS_HEALTHY), Observation(unknown=(hidden,), brokers={}))
    assert hidden in waiting.what


@st.composite
def topic_states(draw: st.DrawFn) -> dict[str, list[tuple[int, int, int]]]:
    """By topic, of each partition: leader, number of replicas, how many are in sync."""
    names = st.text(st.characters(codec="utf-8"), max_size=20)
    states = st.tuples(st.integers(-1, 3), st.integers(0, 4), st.integers(0, 4))
    return draw(st.dictionaries(names, st.lists(states, max_size=4), max_size=4))


def metadata(topics: dict[str, list[tuple[int, int, int]]]) -> bytes:
    """As kio writes the response, with all that stands before the partitions."""
    body = build(
        response_type(METADATA, 7),
        throttle_time=dt.timedelta(0),
        brokers=(
            {"node_id": 1, "host": "a", "port": 9092, "rack": None},
            {"node_id": 2, "host": "ü", "port": 1, "rack": "r"},
        ),
        cluster_id=None,
        controller_id=1,
        topics=tuple(
            {
                "error_code": ErrorCode.none,
                "name": name,
                "partitions": tuple(
                    {
                        "error_code": ErrorCode.none,
                        "partition_index": number,
                        "leader_id": leader,
                        "replica_nodes": tuple(range(replicas)),
                        "isr_nodes": tuple(range(in_sync)),
                        "offline_replicas": (1,) * (number % 2),
                    }
                    for number, (leader, replicas, in_sync) in enumerate(states)
                ),
            }
            for name, states in topics.items()
        ),
    )
    return b"".join(encode_entity(body))


@given(topic_states())
def test_the_list_of_partitions_is_read_as_kio_writes_it(topics: dict[str, list[tuple[int, int, int]]]) -> None:
    expected = [
        PartitionSeen(name, number, leader, tuple(range(replicas)), tuple(range(in_sync)))
        for name, states in topics.items()
        for number, (leader, replicas, in_sync) in enumerate(states)
    ]
    frame = b"head" + metadata(topics)
    assert list(partitions_in(frame, 4, placed=True)) == expected
    assert list(partitions_in(frame, 4, placed=False)) == [
        each for each in expected if each.leader < 0 or len(each.in_sync) < len(each.replicas)
    ]


@given(topic_states(), st.data())
def test_a_list_that_is_cut_off_or_hostile_is_refused(
    topics: dict[str, list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    frame = metadata(topics)
    with pytest.raises(PeerError):
        list(partitions_in(frame[: data.draw(st.integers(0, len(frame) - 1))], 0, placed=True))
    hostile = bytearray(frame)
    hostile[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PeerError):
        list(partitions_in(hostile, 0, placed=True))


def test_the_strictest_default_counts() -> None:
    answers = {
        number: SettingsAnswer(settings, "")
        for number, settings in enumerate([None, {}, {"min.insync.replicas": "2"}, {"min.insync.replicas": "1"}])
    }
    assert min_isr_of(answers) == 2
    assert min_isr_of({}) == 1


@pytest.mark.parametrize(
    ("quorum", "state", "broker", "needed"),
    [
        (LED, PublicState.DUAL_WRITE.label, None, True),
        (LED, PublicState.MIGRATION_INELIGIBLE.label, 1, False),
        (QuorumSeen(None, {}), "", None, True),  # an election is going on
        (LED, "", None, True),  # the log is still being read
        (QuorumSeen(None, {}), "", 1, False),  # a broker is ZooKeeper's controller: nothing was copied
        (None, "", None, True),  # no controller runs, and ZooKeeper says that the quorum has the cluster
    ],
)
def test_the_drain_is_not_left_out_because_nobody_says_how_far_it_is(
    quorum: QuorumSeen | None, state: str, broker: int | None, *, needed: bool
) -> None:
    drain = next(rules for rules in BACK if rules.phase is Phase.DRAIN).needed
    seen = Observation(
        quorum=quorum,
        migration=MigrationSeen(state),
        controller_broker=broker,
        quorum_claims=broker is None,
        zookeeper_answers=True,
    )
    assert drain.is_there(Sight(seen, None)) is needed
    away = replace(seen, quorum_claims=False, zookeeper_answers=False)
    assert drain.is_there(Sight(away, None)) is needed
    nobody = Observation(zookeeper_answers=True)
    assert not drain.is_there(Sight(nobody, None)), "nobody has the cluster"
