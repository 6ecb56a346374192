"""A cluster at metadata.version 3.6, without an authorizer, tokens and the deletion of topics, and its upgrade."""

from __future__ import annotations

import datetime as dt
from typing import Any

from tests.differential.support.names import Names
from tests.differential.support.steps import (
    FEATURE,
    LISTENER,
    SET,
    TOPIC,
    Step,
    acl,
    acl_filter,
    ask,
    beat,
    configs,
    create,
    directory,
    forwarded,
    isr,
    placed,
    reassign,
    registration,
    scram,
)

HOUR = dt.timedelta(hours=1)
TOPIC_ROW = {"name": "t", "partitions": ({"partition_index": 0},)}


def _feature(level: int, version: int = 1, kind: int = 1, name: str = "metadata.version", **fields: Any) -> Step:
    row = {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": kind != 1}
    return ask(57, version, feature_updates=(row,), **fields)


def _directories(names: Names) -> dict[str, Any]:
    return {"broker_id": 1, "broker_epoch": names.epochs[1], "directories": ()}


LEVEL_14 = (
    # One broker, so that there is one way to place replicas
    registration(1, version=0),
    create({"name": "early", "num_partitions": 2, "replication_factor": 1}),
    create({"name": "early"}),
    beat(1, version=0),
    *(create({"name": f"auto{version}"}, version=version) for version in range(4, 8)),
    *(create({"name": f"placed{v}", "num_partitions": 2, "replication_factor": 1}, version=v) for v in range(8)),
    create({"name": "wide", "num_partitions": 1, "replication_factor": 2}),
    *(ask(37, v, topics=({"name": f"placed{v}", "count": 4, "assignments": None},)) for v in range(4)),
    *(registration(broker, version=broker - 1, features=(FEATURE,)) for broker in (2, 3, 4)),
    registration(5, version=4, log_dirs=()),
    registration(6, version=4, log_dirs=(directory(6), directory(6))),
    registration(7, version=4, is_migrating_zk_broker=True),
    *(registration(8, version=version) for version in range(5)),
    *(beat(broker) for broker in (2, 3, 4, 5)),
    beat(2, offline_log_dirs=(directory(2),)),
    create({"name": "t", "assignments": placed((1, 2, 3))}),
    *(isr(version, "t", (1, 2), partition_epoch=version) for version in range(4)),
    isr(3, "t", (1, 2, 3), partition_epoch=1),
    Step(73, 0, _directories),
    ask(70, 0, controller_id=3001, listeners=(LISTENER,), features=(FEATURE,)),
    *(ask(60, version, endpoint_type=2) for version in range(2)),
    *(ask(20, v, topic_names=("t", "nope"), topics=({"name": "t"}, {"name": "nope"})) for v in range(7)),
    ask(20, 6, topics=()),
    *(ask(29, version, **acl_filter()) for version in range(4)),
    *(ask(30, version, creations=(acl(), acl(operation=5))) for version in range(4)),
    *(ask(31, version, filters=(acl_filter(), acl_filter())) for version in range(4)),
    *(forwarded(ask(38, version, renewers=(), max_lifetime=HOUR)) for version in range(4)),
    *(forwarded(ask(39, version, hmac=b"x", renew_period=HOUR)) for version in range(3)),
    *(forwarded(ask(40, version, hmac=b"x", expiry_time_period=HOUR)) for version in range(3)),
    ask(51, 0, upsertions=(scram("a"),)),
    configs(TOPIC, "t", ("flush.ms", "5", SET)),
    reassign("t", (2, 4)),
    beat(1, want_fence=True),
    beat(1),
    beat(2, want_shut_down=True),
    ask(64, 0, broker_id=8),
    ask(18, 4, client_software_name="a", client_software_version="1"),
)

UPGRADE = (
    _feature(13, kind=2),
    _feature(12, kind=2),
    _feature(13, kind=2, validate_only=True),
    _feature(15, version=0),
    _feature(15),
    _feature(17),
    Step(73, 0, _directories),
    registration(9, version=3),
    registration(9, version=4),
    create({"name": "later", "assignments": placed((3, 1))}),
    isr(3, "later", (3,), broker_id=3),
    reassign("t", (3, 5)),
    registration(5, 2),
    _feature(21),
    _feature(21, version=0),
)

NO_BROKERS = (
    *(ask(64, 0, broker_id=broker_id) for broker_id in (1, 2, 3, 4, 5, 9)),
    _feature(1, name="kraft.version", validate_only=True),
    _feature(0, name="kraft.version"),
    _feature(2, name="kraft.version"),
)

STEPS = (*LEVEL_14, *UPGRADE, *NO_BROKERS)
