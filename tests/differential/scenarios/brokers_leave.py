"""Controlled shutdowns, directories that fail, brokers that are removed (APIs 63, 64)."""

from __future__ import annotations

from tests.differential.scenarios.partitions import assign_directories
from tests.differential.support.steps import ask, beat, create, directory, labelled, placed, registration

STEPS = (
    # Everybody reports an offset: stock forgets it with each change of a registration, as the first beat of 6 makes
    *(beat(broker_id) for broker_id in (1, 3, 5, 6, 6)),
    beat(3, current_metadata_offset=5),
    beat(2, want_shut_down=True),
    beat(2, want_shut_down=True),
    beat(3),
    beat(2, want_shut_down=True),
    registration(2, 4),
    beat(2),
    beat(1, want_fence=True, want_shut_down=True),
    beat(1),
    # One of two directories fails
    create({"name": "led", "assignments": placed((5, 3))}),
    create({"name": "followed", "assignments": placed((3, 5))}),
    create({"name": "elsewhere", "assignments": placed((5, 3))}),
    assign_directories(5, *((directory(5, 1), name, 0) for name in ("led", "followed"))),
    assign_directories(5, (directory(5), "elsewhere", 0)),
    beat(5, offline_log_dirs=(directory(5, 1),)),
    beat(5, offline_log_dirs=(directory(5, 1),)),
    assign_directories(5, (directory(5, 1), "elsewhere", 0)),
    beat(5, offline_log_dirs=(directory(7),)),
    labelled("the last directory fails", beat(3, offline_log_dirs=(directory(3),))),
    ask(64, 0, broker_id=9),
    ask(64, 0, broker_id=2),
    beat(2),
    registration(2, 4),
    beat(2),
    ask(64, 0, broker_id=4),
)
