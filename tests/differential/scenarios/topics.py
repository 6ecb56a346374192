"""CreateTopics, DeleteTopics, CreatePartitions (APIs 19, 20, 37)."""

from __future__ import annotations

from typing import Any

from tests.differential.support.steps import Step, ask, create, labelled, placed, some_uuid

MANY = 10_001


def _config(key: str, text: str | None) -> dict[str, Any]:
    return {"configs": ({"name": key, "value": text},), "assignments": placed((1,))}


def _grow(name: str, count: int, rows: tuple[tuple[int, ...], ...] | None = None, version: int = 3, **f: Any) -> Step:
    assignments = None if rows is None else tuple({"broker_ids": row} for row in rows)
    return ask(37, version, topics=({"name": name, "count": count, "assignments": assignments},), **f)


def _delete(*names: str, version: int = 6) -> Step:
    return ask(20, version, topic_names=names, topics=tuple({"name": name} for name in names))


CREATION = (
    create({"name": "early", "assignments": placed((4,))}),
    create({"name": "early", "num_partitions": 1, "replication_factor": 7}),
    create(
        {
            "name": "t",
            "assignments": placed((1, 2, 3), (2, 3, 1)),
            "configs": ({"name": "retention.ms", "value": "5"},),
        }
    ),
    create({"name": "u", "assignments": placed((1, 2))}),
    create({"name": "a.b", "assignments": placed((1,))}),
    create({"name": "a_b", "num_partitions": 1, "replication_factor": 1}),
    create({"name": "a_b", "num_partitions": 1, "replication_factor": 1}, {"name": "a.b"}),
    create({"name": "t"}, {"name": ""}, {"name": ".."}, {"name": "."}, {"name": "a b"}, {"name": "x" * 250}),
    create({"name": "x" * 249, "assignments": placed((1,))}, {"name": "ü"}),
    create(
        {"name": "c", "replication_factor": 0},
        {"name": "d", "replication_factor": 9},
        {"name": "e", "num_partitions": 0},
        {"name": "f", "num_partitions": -2},
        {"name": "g", "replication_factor": -2},
    ),
    create({"name": "c", "assignments": placed((1,)), "num_partitions": 1}),
    create({"name": "c", "assignments": placed((1,)), "replication_factor": 1}),
    create({"name": "c", "assignments": placed((1, 1))}, {"name": "d", "assignments": placed((9,))}),
    create({"name": "c", "assignments": placed((1, 2), (1,))}, {"name": "d", "assignments": placed(())}),
    create({"name": "c", "assignments": ({"partition_index": 1, "broker_ids": (1,)},)}),
    create({"name": "c", "assignments": ({"partition_index": -1, "broker_ids": (1,)},)}),
    create({"name": "c", "assignments": (*placed((1,)), *placed((2,)))}),
    create({"name": "c", "assignments": placed((4, 5))}),
    create({"name": "partly", "assignments": placed((4, 1))}),
    create({"name": "c", **_config("nope", "1")}),
    create({"name": "c", **_config("retention.ms", None)}),
    create({"name": "c", **_config("segment.bytes", "1")}),
    create({"name": "c", **_config("retention.ms", "x")}),
    create({"name": "c", **_config("cleanup.policy", "x")}),
    create({"name": "all", **_config("cleanup.policy", "compact,delete")}),
    create({"name": "c", "assignments": placed((1,))}, {"name": "c", "assignments": placed((1,))}),
    create(
        {"name": "c", "assignments": placed((1,))},
        {"name": "c", "assignments": placed((1,))},
        {"name": "c", "assignments": placed((1,))},
        {"name": "good", "assignments": placed((1,))},
    ),
    create({"name": "dry", "assignments": placed((1,))}, validate_only=True),
    create({"name": "t", "assignments": placed((1,))}, validate_only=True),
    create({"name": "__cluster_metadata", "assignments": placed((1,))}),
    create({"name": "__consumer_offsets", "assignments": placed((1,))}),
    create({"name": "v", "num_partitions": 1, "replication_factor": 10_000}),
    create({"name": "b1", "num_partitions": MANY, "replication_factor": 1}),
    create(),
    create({"name": "x.y", "assignments": placed((1,))}, {"name": "x_y", "assignments": placed((1,))}),
    *(create({"name": f"v{v}", "assignments": placed((1, 2))}, version=v) for v in range(8)),
    *(create({"name": f"v{v}", "assignments": placed((1, 2))}, version=v) for v in range(8)),
    *(create({"name": f"w{v}", "assignments": placed((1, 2), (3, 1))}, version=v) for v in range(8)),
)

PARTITIONS = (
    _grow("u", 2, ((2, 3),)),
    _grow("u", 2),
    _grow("u", 1),
    _grow("nope", 3),
    _grow("u", 3, ()),
    _grow("u", 3, ((1,),)),
    _grow("u", 3, ((1, 9),)),
    _grow("u", 3, ((1, 1),)),
    _grow("u", 3, ((),)),
    _grow("u", 3, ((4, 5),)),
    _grow("u", 4, ((1, 2),)),
    _grow("u", 0),
    _grow("u", -1),
    _grow("u", 3, ((1, 2),), validate_only=True),
    *(_grow(f"v{v}", 2, ((2, 4),), version=v) for v in range(4)),
    *(_grow("x", 2, version=v) for v in range(4)),
    ask(37, 3, topics=({"name": "u", "count": 3, "assignments": None}, {"name": "u", "count": 4, "assignments": None})),
    ask(37, 3, topics=()),
)

STEPS = (*CREATION, *PARTITIONS)

LIMITS = (
    create({"name": "big", "assignments": placed((1,))}),
    labelled("more partitions than one request may create", _grow("big", 1 + MANY)),
)
"""At the end: what stock is left with is another cluster."""

DELETION = (
    *(_delete(f"w{v}", "x", version=v) for v in range(7)),
    _delete("w7", "w7"),
    _delete("w7", "w7", "w7"),
    _delete(),
    _delete("", "!"),
    Step(
        20,
        6,
        lambda names: {
            "topics": (
                {"name": None, "topic_id": names.topics["w7"]},
                {"name": "w7"},
                {"name": None, "topic_id": None},
                {"name": "t", "topic_id": names.topics["t"]},
                {"name": None, "topic_id": some_uuid(5)},
                {"name": "good"},
                {"name": "good"},
            )
        },
    ),
    Step(20, 6, lambda names: {"topics": 2 * ({"name": None, "topic_id": names.topics["good"]},)}),
    Step(20, 6, lambda names: {"topics": ({"name": None, "topic_id": names.topics["good"]}, {"name": "partly"})}),
    Step(20, 6, lambda names: {"topics": ({"name": None, "topic_id": names.topics["good"]},)}),
    create({"name": "good", "assignments": placed((2,))}),
)
