"""Controlled shutdowns, directories that fail, brokers that are removed (APIs 63, 64)."""

from __future__ import annotations

from tests.differential.steps import ask, beat, directory, labelled, registration

STEPS = (
    # Everybody reports an offset: stock forgets it with each change of a registration, as the first beat of 6 makes
    *(beat(broker_id) for broker_id in (1, 3, 5, 6, 6)),
    beat(3, current_metadata_offset=5),
    beat(2, want_shut_down=True),
    beat(2, want_shut_down=True),
    beat(3),
    beat(2, want_shut_down=True),
    beat(2),
    registration(2, 4),
    beat(2),
    beat(1, want_fence=True, want_shut_down=True),
    beat(1),
    beat(5, offline_log_dirs=(directory(5, 1),)),
    beat(5, offline_log_dirs=(directory(5, 1),)),
    beat(5, offline_log_dirs=(directory(7),)),
    labelled("the last directory fails", beat(3, offline_log_dirs=(directory(3),))),
    ask(64, 0, broker_id=9),
    ask(64, 0, broker_id=2),
    beat(2),
    registration(2, 4),
    beat(2),
    ask(64, 0, broker_id=4),
)
