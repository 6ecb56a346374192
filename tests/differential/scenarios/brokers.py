"""Requests of brokers and controllers for themselves before there are topics (APIs 62, 63, 64, 67, 70)."""

from __future__ import annotations

from typing import Any

from tests.differential.support.names import Names
from tests.differential.support.steps import (
    BROKERS,
    FEATURE,
    LISTENER,
    NODE,
    Step,
    ask,
    beat,
    directory,
    labelled,
    registration,
    some_uuid,
)

SECOND_LISTENER = {"name": "TLS", "host": "h2", "port": 9093, "security_protocol": 1}
KRAFT = {"name": "kraft.version", "min_supported_version": 0, "max_supported_version": 1}


def _producer_ids(broker_id: int, **changes: Any) -> Step:
    def fields(names: Names) -> dict[str, Any]:
        return {"broker_id": broker_id, "broker_epoch": names.epochs.get(broker_id, -7), **changes}

    return Step(67, 0, fields)


def _controller(controller_id: int, incarnation: int = 1, **changes: Any) -> Step:
    fields = {
        "controller_id": controller_id,
        "incarnation_id": some_uuid(50_000 + 100 * controller_id + incarnation),
        "zk_migration_ready": False,
        "listeners": (LISTENER,),
        "features": (FEATURE, KRAFT),
        **changes,
    }
    return ask(70, 0, **fields)


STEPS = (
    # Registrations that are refused
    registration(1, cluster_id="other"),
    registration(1, log_dirs=()),
    registration(1, log_dirs=(some_uuid(1), some_uuid(1))),
    registration(1, log_dirs=(some_uuid(-999),)),
    registration(1, log_dirs=(some_uuid(-901),)),
    registration(1, features=({**FEATURE, "max_supported_version": 20},)),
    registration(1, features=({**FEATURE, "min_supported_version": 22, "max_supported_version": 25},)),
    registration(1, features=()),
    registration(1, features=(FEATURE, {**KRAFT, "min_supported_version": 1})),
    registration(1, is_migrating_zk_broker=True),
    *(registration(1, version=version) for version in range(4)),
    beat(1),
    beat(1, version=0),
    # Those that are granted
    *(registration(broker_id) for broker_id in BROKERS),
    registration(4, rack="r", listeners=(LISTENER, SECOND_LISTENER), features=(FEATURE, KRAFT)),
    registration(5, log_dirs=(directory(5), directory(5, 1)), listeners=(SECOND_LISTENER,)),
    registration(6, features=(FEATURE, {"name": "nope", "min_supported_version": 0, "max_supported_version": 3})),
    registration(6, 2, features=(FEATURE, {"name": "nope", "min_supported_version": 1, "max_supported_version": 3})),
    registration(6, 3, listeners=()),
    registration(1),
    registration(3, log_dirs=(directory(1),)),
    # Heartbeats of the fenced
    beat(1, want_fence=True),
    beat(1, current_metadata_offset=-1),
    beat(1, current_metadata_offset=0),
    beat(1, broker_epoch=99),
    beat(1, broker_epoch=-1),
    beat(9),
    beat(5, want_shut_down=True),
    beat(5, want_fence=True, want_shut_down=True),
    beat(5, offline_log_dirs=(some_uuid(77),)),
    # A new incarnation of a fenced broker
    registration(2, 2),
    registration(2, 2, rack="elsewhere"),
    registration(2, 3),
    *(beat(broker_id) for broker_id in BROKERS),
    beat(2, version=0),
    registration(1, 2),
    registration(1),
    registration(1, rack="moved"),
    registration(1),
    beat(5, version=0),
    beat(5, want_fence=True),
    # Blocks of producer ids
    _producer_ids(1),
    _producer_ids(2),
    _producer_ids(5),
    _producer_ids(1, broker_epoch=99),
    _producer_ids(9),
    # Controllers
    _controller(3001),
    _controller(3001),
    _controller(3001, 2, listeners=(LISTENER, SECOND_LISTENER)),
    _controller(3002, zk_migration_ready=True, listeners=()),
    ask(60, 1, endpoint_type=2, include_cluster_authorized_operations=True),
    ask(60, 1, endpoint_type=2),
    ask(60, 1, endpoint_type=1),
    ask(60, 1, endpoint_type=3),
    ask(60, 0),
    # Removal
    ask(64, 0, broker_id=9),
    ask(64, 0, broker_id=6),
    ask(64, 0, broker_id=6),
    ask(64, 0, broker_id=NODE),
    beat(6),
    registration(6, 3),
)
NEGATIVE = tuple(
    labelled("a negative id of a node", step) for step in (registration(-1), _controller(-1), ask(64, 0, broker_id=-1))
)
"""Played last: stock's log holds them from then on."""
