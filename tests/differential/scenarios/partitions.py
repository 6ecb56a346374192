"""ISRs, directories, elections and reassignments (APIs 56, 73, 43, 45, 46)."""

from __future__ import annotations

from typing import Any

from tests.differential.support.names import Names
from tests.differential.support.steps import (
    SET,
    TOPIC,
    Step,
    ask,
    beat,
    configs,
    create,
    directory,
    isr,
    placed,
    reassign,
    some_uuid,
)

VERSIONS = range(4)


UNCLEAN = ({"name": "unclean.leader.election.enable", "value": "true"},)


def _member(broker_id: int, epoch: int) -> dict[str, int]:
    return {"broker_id": broker_id, "broker_epoch": epoch}


def assign_directories(broker_id: int, *rows: tuple[Any, str, int], **changes: Any) -> Step:
    """AssignReplicasToDirs: directory, topic and partition of each row."""

    def fields(names: Names) -> dict[str, Any]:
        found = tuple(
            {
                "id_": where,
                "topics": ({"topic_id": names.topics.get(topic), "partitions": ({"partition_index": number},)},),
            }
            for where, topic, number in rows
        )
        return {
            "broker_id": broker_id,
            "broker_epoch": names.epochs.get(broker_id, -7),
            "directories": found,
            **changes,
        }

    return Step(73, 0, fields)


def _elect(kind: int, version: int = 2, /, **topics: tuple[int, ...]) -> Step:
    rows = tuple({"topic": topic, "partitions": numbers} for topic, numbers in topics.items())
    return ask(43, version, election_type=kind, topic_partitions=rows)


def _listed(**topics: tuple[int, ...]) -> Step:
    rows = tuple({"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items())
    return ask(46, 0, topics=rows)


# Not asked for: a leader recovery state that does not exist, upon which a stock controller resigns.
ISR = (
    *(isr(v, "nope", (1,)) for v in VERSIONS),
    *(isr(v, "t", (1, 2), leader_epoch=1) for v in VERSIONS),
    *(isr(v, "t", (1, 2), partition_epoch=1) for v in VERSIONS),
    *(isr(v, "t", (1, 2), leader_epoch=-1) for v in VERSIONS),
    *(isr(v, "t", (1, 2), partition_epoch=-1) for v in VERSIONS),
    *(isr(v, "t", (1, 2), broker_id=2) for v in VERSIONS),
    *(isr(v, "t", (1, 1)) for v in VERSIONS),
    *(isr(v, "t", (2, 3)) for v in VERSIONS),
    *(isr(v, "t", ()) for v in VERSIONS),
    *(isr(v, "t", (1, 9)) for v in VERSIONS),
    *(isr(v, "partly", (1, 4)) for v in VERSIONS),
    *(isr(v, "t", (1, 2), leader_recovery_state=1) for v in range(1, 4)),
    *(isr(v, "t", (1,), leader_recovery_state=1) for v in range(1, 4)),
    *(isr(v, "t", (1, 2), partition_index=7) for v in VERSIONS),
    isr(3, "t", (1, 2), new_isr_with_epochs=(_member(1, 1), _member(2, 1))),
    isr(3, "v3", (1, 2), new_isr_with_epochs=(_member(1, -1),)),
    *(isr(v, f"v{v + 4}", (1,)) for v in VERSIONS),
    *(isr(v, f"v{v + 4}", (1, 2), partition_epoch=1) for v in VERSIONS),
    isr(3, "t", (1, 2)),
    isr(3, "t", (1, 2), partition_epoch=1),
    isr(3, "t", (1, 2, 3), partition_epoch=1),
    Step(56, 3, lambda _: {"broker_id": 1, "broker_epoch": 99, "topics": ({"topic_id": None, "partitions": ()},)}),
    Step(56, 3, lambda _: {"broker_id": 1, "broker_epoch": 99, "topics": ()}),
    Step(56, 3, lambda n: {"broker_id": 1, "broker_epoch": n.epochs[1], "topics": ()}),
    Step(56, 3, lambda _: {"broker_id": 9, "broker_epoch": 1, "topics": ()}),
    Step(
        56,
        3,
        lambda names: {
            "broker_id": 1,
            "broker_epoch": names.epochs[1],
            "topics": (
                {"topic_id": None, "partitions": ({"partition_index": 0, "new_isr_with_epochs": (_member(1, -1),)},)},
            ),
        },
    ),
)

DIRECTORIES = (
    assign_directories(1, (directory(1), "t", 0)),
    assign_directories(1, (directory(1), "t", 0)),
    assign_directories(1, (directory(1), "t", 9), (directory(1), "t", 1), (directory(1), "u", 1)),
    assign_directories(1, (directory(1), "nope", 0)),
    assign_directories(1, (some_uuid(78), "nope", 0), (None, "t", 0)),
    assign_directories(1, (directory(1), "t", 0), broker_epoch=99),
    assign_directories(9, (directory(1), "t", 0)),
    assign_directories(1),
    assign_directories(1, (some_uuid(77), "v7", 0)),
    assign_directories(2, (some_uuid(-998), "t", 0), (some_uuid(-999), "t", 1)),
    assign_directories(2, (directory(2), "t", 0), (directory(2), "t", 1)),
)

ELECTIONS = (
    _elect(0, t=(0, 1, 7), x=(0,)),
    _elect(1, t=(0,)),
    _elect(7, t=(0,)),
    _elect(-1, t=(0,)),
    _elect(0),
    *(_elect(0, version, t=(0, 9)) for version in range(3)),
    *(create({"name": f"elect{version}", "assignments": placed((1, 2))}) for version in range(3)),
    beat(1, want_fence=True),
    _elect(0, t=(0, 1)),
    ask(43, 2, election_type=1, topic_partitions=({"topic": "a.b", "partitions": (0,)},)),
    ask(43, 2, election_type=0, topic_partitions=None),
    ask(43, 2, election_type=1, topic_partitions=None),
    isr(3, "t", (2, 1), broker_id=2, leader_epoch=1, partition_epoch=3),
    beat(1),
    isr(3, "t", (1, 2, 3), broker_id=2, leader_epoch=1, partition_epoch=3),
    isr(3, "t", (1, 2, 3), broker_id=2, leader_epoch=1, partition_epoch=4),
    isr(3, "t", (1, 2, 3), broker_id=2, leader_epoch=1, partition_epoch=5),
    isr(3, "t", (1, 2, 3), broker_id=2, leader_epoch=1, partition_epoch=6),
    *(_elect(0, version, t=(0,)) for version in range(3)),
    *(isr(3, f"elect{version}", (2, 1), 2, leader_epoch=1, partition_epoch=1) for version in range(3)),
    *(_elect(0, version, **{f"elect{version}": (0,)}) for version in range(3)),
    ask(43, 0, topic_partitions=None),
    # An unclean one: the only member of the ISR dies, another replica lives
    create({"name": "dirty", "assignments": placed((5, 3))}),
    create({"name": "wild", "assignments": placed((5, 3)),  "configs": UNCLEAN}),
    beat(5),
    create({"name": "lost", "assignments": placed((5, 3))}),
    create({"name": "risky", "assignments": placed((5, 3)),  "configs": UNCLEAN}),
    isr(3, "lost", (5,), broker_id=5),
    isr(3, "risky", (5,), broker_id=5),
    beat(5, want_fence=True),
    _elect(0, lost=(0,), dirty=(0,)),
    _elect(1, lost=(0,), risky=(0,)),
    _elect(1, lost=(0,)),
    isr(3, "lost", (3,), broker_id=3, leader_epoch=2, partition_epoch=3, leader_recovery_state=1),
    isr(3, "lost", (3,), broker_id=3, leader_epoch=2, partition_epoch=3),
    isr(3, "lost", (3,), broker_id=3, leader_epoch=3, partition_epoch=3),
    beat(5),
)  # fmt: skip

REASSIGNMENTS = (
    reassign("u", None),
    reassign("u", (3, 2)),
    ask(46, 0, topics=None),
    _listed(u=(0, 1), x=(0,)),
    _listed(),
    _listed(u=(7,)),
    isr(3, "u", (1, 2, 3), leader_epoch=0, partition_epoch=1),
    isr(3, "u", (2, 3), broker_id=2, leader_epoch=1, partition_epoch=2),
    reassign("u", (1, 2)),
    reassign("u", (2, 1)),
    reassign("u", None),
    reassign("u", (1, 1)),
    reassign("u", ()),
    reassign("u", (9,)),
    reassign("u", (4,)),
    reassign("u", (4, 5)),
    _listed(u=(0,)),
    reassign("u", None),
    reassign("u", None),
    reassign("u", (1,), 9),
    reassign("u", (1,), -1),
    reassign("x", (1,)),
    reassign("t", (2,), 1),
    reassign("t", (3, 2, 1)),
    # Only new replicas are in sync: there is no clean way back
    create({"name": "moving", "assignments": placed((1, 2))}),
    reassign("moving", (3,)),
    isr(3, "moving", (1, 2, 3), partition_epoch=1),
    create({"name": "moved", "assignments": placed((1,))}),
    reassign("moved", (1, 2, 3)),
    isr(3, "moved", (1, 2), partition_epoch=1),
    reassign("moved", (2, 3)),
    isr(3, "moved", (1, 2, 3), partition_epoch=3),
    reassign("moved", None),
    # The end of a reassignment takes the leadership from who asks
    *(create({"name": f"given{version}", "assignments": placed((1, 2))}) for version in VERSIONS),
    *(reassign(f"given{version}", (3, 2)) for version in VERSIONS),
    *(isr(version, f"given{version}", (1, 2, 3), partition_epoch=1) for version in VERSIONS),
    # Only new replicas are in sync, and the old one is dead
    create({"name": "cornered", "assignments": placed((1,))}),
    create({"name": "careless", "assignments": placed((1,)), "configs": UNCLEAN}),
    *(reassign(name, (2, 3)) for name in ("cornered", "careless")),
    *(isr(3, name, (1, 2), partition_epoch=1) for name in ("cornered", "careless")),
    beat(1, want_fence=True),
    *(reassign(name, None) for name in ("cornered", "careless")),
    beat(1),
    ask(45, 0, topics=({"name": "t", "partitions": ()}, {"name": "x", "partitions": ()})),
    ask(45, 0, topics=()),
    configs(TOPIC, "v1", ("min.insync.replicas", "2", SET)),
)

STEPS = (*ISR, *DIRECTORIES, *ELECTIONS, *REASSIGNMENTS)
