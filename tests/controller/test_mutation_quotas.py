"""``controller_mutation_rate``: whose bucket a request takes tokens from, and what happens when it is empty."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.mutation_quotas import LONGEST_WAIT_MS, PRUNE_ABOVE, MutationQuota
from migrator.records.metadata import ClientQuotaRecord, QuotaEntity
from tests.controller.world import World

BURST_SECONDS = 10


def limit(world: World, rate: float, **entity: str | None) -> None:
    """Set a quota; a name of None is the default of its type."""
    parts = tuple(QuotaEntity(kind.replace("_", "-"), name) for kind, name in entity.items())
    world.write(ClientQuotaRecord(parts, "controller_mutation_rate", rate, remove=False))


def lift(world: World, **entity: str | None) -> None:
    parts = tuple(QuotaEntity(kind.replace("_", "-"), name) for kind, name in entity.items())
    world.write(ClientQuotaRecord(parts, "controller_mutation_rate", 0.0, remove=True))


def quota(world: World, user: str = "alice", client_id: str = "app", *, strict: bool = True) -> MutationQuota:
    return world.mutations.quota_of(
        world.image, user, client_id, strict=strict, burst_seconds=BURST_SECONDS, now_ms=world.now_ms
    )


def charged(asked: MutationQuota, partitions: int) -> ErrorCode:
    try:
        asked.charge(partitions)
    except RefusedError as refusal:
        return refusal.error.code
    return ErrorCode.none


def test_a_strict_quota_refuses_when_the_bucket_is_below_zero_and_not_before() -> None:
    world = World()
    limit(world, 2.0, user="alice")
    first = quota(world)
    assert charged(first, 20) is ErrorCode.none  # all that was saved up
    assert charged(first, 30) is ErrorCode.none  # at zero it is not exhausted
    assert first.throttle_ms == 0
    assert charged(first, 1) is ErrorCode.throttling_quota_exceeded
    assert first.throttle_ms == 15_000
    world.now_ms += 14_999
    assert charged(quota(world), 1) is ErrorCode.throttling_quota_exceeded
    world.now_ms += 1
    assert charged(quota(world), 1) is ErrorCode.none


def test_a_permissive_quota_grants_everything_and_lets_the_client_wait() -> None:
    world = World()
    limit(world, 2.0, user="alice")
    asked = quota(world, strict=False)
    assert [charged(asked, 20), asked.throttle_ms] == [ErrorCode.none, 0]
    assert [charged(asked, 30), asked.throttle_ms] == [ErrorCode.none, 15_000]
    assert [charged(asked, 2), asked.throttle_ms] == [ErrorCode.none, 16_000]


def test_nobody_saves_up_more_than_the_windows_allow() -> None:
    world = World()
    limit(world, 1.0, user="alice")
    charged(quota(world), 1)
    world.now_ms += 10**9
    assert charged(quota(world), BURST_SECONDS + 1) is ErrorCode.none
    assert charged(quota(world), 1) is ErrorCode.throttling_quota_exceeded


@pytest.mark.parametrize("rate", [1e-9, 1e-310])
@pytest.mark.parametrize("strict", [True, False])
def test_a_wait_fits_into_an_answer(rate: float, strict: bool) -> None:
    world = World()
    limit(world, rate, user="alice")
    asked = quota(world, strict=strict)
    charged(asked, 10_000)
    charged(asked, 1)
    assert asked.throttle_ms == LONGEST_WAIT_MS


@pytest.mark.parametrize("rate", [0.0, -1.0])
@pytest.mark.parametrize("strict", [True, False])
def test_a_rate_that_zookeeper_held_and_no_controller_takes_is_waited_for_as_long_as_an_answer_can_say(
    rate: float, strict: bool
) -> None:
    world = World()
    limit(world, rate, user="alice")
    quota(world, strict=False).charge(1)
    world.now_ms += 60_000
    asked = quota(world, strict=strict)
    assert charged(asked, 1) is (ErrorCode.throttling_quota_exceeded if strict else ErrorCode.none)
    assert asked.throttle_ms == LONGEST_WAIT_MS


LEVELS = (
    {"user": "alice", "client_id": "app"},
    {"user": "alice", "client_id": None},
    {"user": "alice"},
    {"user": None, "client_id": "app"},
    {"user": None, "client_id": None},
    {"user": None},
    {"client_id": "app"},
    {"client_id": None},
)
"""Whose quota counts, the first that there is: Kafka's order."""


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_most_specific_quota_counts(level: int) -> None:
    world = World()
    for below, entity in enumerate(LEVELS[level:]):
        limit(world, 1000.0 if below else 1.0, **entity)
    charged(quota(world), BURST_SECONDS + 5)
    asked = quota(world)
    charged(asked, 1)
    assert asked.throttle_ms == 5_000


@pytest.mark.parametrize(
    ("entity", "shared_with"),
    [
        ({"user": None}, [("alice", "other"), ("alice", "")]),
        ({"user": "alice"}, [("alice", "other"), ("alice", "")]),
        ({"client_id": None}, [("bob", "app")]),
        ({"user": None, "client_id": None}, []),
        ({"user": "alice", "client_id": None}, []),
    ],
)
def test_who_shares_a_bucket(entity: dict[str, str | None], shared_with: list[tuple[str, str]]) -> None:
    """A default is everybody's limit, and not one limit for all together."""
    world = World()
    limit(world, 1.0, **entity)
    charged(quota(world), 1_000)
    others = [(user, client) for user in ("alice", "bob") for client in ("app", "other", "")]
    held = [other for other in others if charged(quota(world, *other), 0) is not ErrorCode.none]
    assert sorted(held) == sorted([("alice", "app"), *shared_with])


def test_a_client_without_an_id_has_no_quota_by_id() -> None:
    world = World()
    limit(world, 1.0, client_id=None)
    limit(world, 1.0, user="alice", client_id=None)
    for _ in range(2):
        assert charged(quota(world, client_id=""), 1_000) is ErrorCode.none


def test_a_new_rate_holds_at_once_and_a_lifted_quota_no_more() -> None:
    world = World()
    limit(world, 1.0, user="alice")
    charged(quota(world), BURST_SECONDS + 100)
    limit(world, 50.0, user="alice")
    asked = quota(world)
    charged(asked, 1)
    assert asked.throttle_ms == 2_000
    lift(world, user="alice")
    assert charged(quota(world), 1) is ErrorCode.none


def test_buckets_that_are_full_again_are_forgotten() -> None:
    """A client may call itself anything: what it leaves behind has to end."""
    world = World()
    limit(world, 1.0, client_id=None)
    for number in range(20 * PRUNE_ABOVE):
        charged(quota(world, client_id=f"app-{number}"), 1)
        world.now_ms += 10
    assert len(world.mutations) <= 3 * PRUNE_ABOVE
