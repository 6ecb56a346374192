"""Random access control entries, and after each handful of them every question by every principal from every host.

Nothing that is asked changes anything. Hosts are compared as text, so IPv6 is written in more than one way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random

from migrator.wire.principal import Principal
from tests.differential.support.steps import (
    BROKER,
    SET,
    TOPIC,
    Step,
    acl,
    acl_filter,
    ask,
    configs,
    create,
    quota,
    scram,
)
from tests.lanes import examples

ROUNDS = examples(5)
ENTRIES = 24
"""A round's: more, and nearly everything is denied."""

NAMES = ("right", "right-a", "right-ab", "*")
PRINCIPALS = ("alice", "CN=alice,O=b", "Alice")
HOSTS = ("127.0.0.1", "10.0.0.1", "::1", "fe80::1", "::ffff:10.0.0.1")
WRITTEN_HOSTS = (*HOSTS, "*", "*", "*", "*", "0:0:0:0:0:0:0:1", "fe80:0:0:0:0:0:0:1", "FE80::1", "localhost")
RESOURCES = (
    *((2, name) for name in NAMES),
    (3, "right"),
    (4, "kafka-cluster"),
    (4, "kafka-cluster"),
    (4, "*"),
    (7, "*"),
)
"""Topics, a group, the cluster, users."""
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
OPERATIONS = range(2, 15)

_ONE = {"num_partitions": 1, "replication_factor": 1}
QUESTIONS = (
    *(create({"name": name, **_ONE}, validate_only=True) for name in NAMES[:3]),
    ask(20, 6, topics=tuple({"name": name} for name in NAMES[:3])),
    ask(37, 3, topics=tuple({"name": name, "count": 9, "assignments": None} for name in NAMES[:3]), validate_only=True),
    *(configs(TOPIC, name, ("flush.ms", "1", SET), validate_only=True) for name in NAMES[:3]),
    configs(BROKER, "1", ("background.threads", "3", SET), validate_only=True),
    quota({"user": "a"}, ("producer_byte_rate", 1.0, False), validate_only=True),
    ask(43, 2, election_type=0, topic_partitions=({"topic": "right", "partitions": (0,)},)),
    ask(46, 0, topics=None),
    ask(51, 0, upsertions=(scram("", iterations=1),)),
    ask(67, 0, broker_id=77, broker_epoch=77),
)
"""Refused for some other reason where the right is there."""


def _granted(random: Random) -> Step:
    entries = []
    for _ in range(ENTRIES):
        kind, name = random.choice(RESOURCES)
        pattern = random.choice((LITERAL, PREFIXED)) if kind == 2 and name != "*" else LITERAL
        entries.append(
            acl(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=pattern,
                principal=f"User:{random.choice((*PRINCIPALS, '*'))}",
                host=random.choice(WRITTEN_HOSTS),
                operation=random.choice(OPERATIONS),
                permission_type=random.choice((ALLOW, ALLOW, ALLOW, DENY)),
            )
        )
    return ask(30, 3, creations=tuple(entries))


def _steps() -> Iterator[Step]:
    for seed in range(ROUNDS):
        yield ask(31, 3, filters=(acl_filter(),))
        yield _granted(Random(seed))
        yield ask(29, 3, **acl_filter())
        for name, host, question in product(PRINCIPALS, HOSTS, QUESTIONS):
            yield replace(question, by=Principal("User", name), host=host)
    yield ask(31, 3, filters=(acl_filter(),))


STEPS = tuple(_steps())
