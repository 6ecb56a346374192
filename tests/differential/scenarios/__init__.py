"""The scenarios, in the order in which they are played."""

from __future__ import annotations

from tests.differential.scenarios import (
    brokers,
    brokers_leave,
    cluster,
    configurations,
    entities,
    guarded,
    mutation_quotas,
    old,
    partitions,
    raft,
    rights,
    strangers,
    timeouts,
    tokens,
    topics,
)
from tests.differential.support.steps import Scenario

MAIN = (
    Scenario("brokers", brokers.STEPS),
    Scenario("topics", topics.STEPS),
    Scenario("partitions", partitions.STEPS),
    Scenario("configurations", configurations.STEPS),
    Scenario("entities", entities.STEPS),
    Scenario("mutation quotas", mutation_quotas.STEPS),
    Scenario("tokens", tokens.STEPS),
    Scenario("strangers", strangers.STEPS),
    Scenario("rights", rights.STEPS),
    Scenario("cluster", cluster.STEPS),
    Scenario("raft", raft.STEPS),
    Scenario("brokers leave", brokers_leave.STEPS),
    Scenario("topics are deleted", (*topics.DELETION, *tokens.EXPIRED)),
    Scenario("limits", topics.LIMITS),
    Scenario("negative ids", brokers.NEGATIVE),
    Scenario("timeouts", timeouts.STEPS),
)
GUARDED = (Scenario("guarded", guarded.STEPS),)
OLD = (Scenario("before brokers", cluster.BEFORE_BROKERS), Scenario("old", old.STEPS))
