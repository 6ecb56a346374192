"""Requests that may take no time at all. Kafka's controller queues what it decides, and is always too late for them."""

from __future__ import annotations

import datetime as dt

from tests.differential.support.steps import Step, ask, create, labelled, placed


def _within(milliseconds: int) -> tuple[Step, ...]:
    timeout, name = dt.timedelta(milliseconds=milliseconds), f"within{milliseconds}"
    row = ({"partition_index": 0, "replicas": (2, 1)},)
    asked = (
        create({"name": f"{name}-new", "assignments": placed((1,))}, timeout=timeout),
        ask(37, 3, topics=({"name": name, "count": 2, "assignments": None},), timeout=timeout),
        ask(45, 0, topics=({"name": name, "partitions": row},), timeout=timeout),
        ask(43, 2, election_type=0, topic_partitions=({"topic": name, "partitions": (0,)},), timeout=timeout),
        ask(20, 6, topics=({"name": name},), timeout=timeout),
    )
    return (
        create({"name": name, "assignments": placed((1, 2))}),
        *(labelled("no time for what is asked", step) for step in asked),
        create(timeout=timeout),
        ask(37, 3, topics=(), timeout=timeout),
        ask(45, 0, topics=(), timeout=timeout),
        ask(43, 2, election_type=0, topic_partitions=(), timeout=timeout),
        ask(20, 6, topics=(), timeout=timeout),
        ask(57, 1, feature_updates=({"feature": "nope", "max_version_level": 1},), timeout=timeout),
    )


STEPS = (*_within(0), *_within(-1))
