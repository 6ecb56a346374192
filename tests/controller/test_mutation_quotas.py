"""``controller_mutation_rate``: whose bucket a request takes tokens from, and what happens when it is empty."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.mutation_quotas import LONGEST_WAIT_MS, PRUNE_ABOVE, MutationQuota
from migrator.records.metadata import ClientQuotaRecord, QuotaEntity
from tests.controller.support.leading_controller import LeadingController

BURST_SECONDS = 10


def limit(controller: LeadingController, rate: float, **entity: str | None) -> None:
    """Set a quota; a name of None is the default of its type."""
    parts = tuple(QuotaEntity(kind.replace("_", "-"), name) for kind, name in entity.items())
    controller.write(ClientQuotaRecord(parts, "controller_mutation_rate", rate, remove=False))


def lift(controller: LeadingController, **entity: str | None) -> None:
    parts = tuple(QuotaEntity(kind.replace("_", "-"), name) for kind, name in entity.items())
    controller.write(ClientQuotaRecord(parts, "controller_mutation_rate", 0.0, remove=True))


def quota(
    controller: LeadingController, user: str = "alice", client_id: str = "app", *, strict: bool = True
) -> MutationQuota:
    return controller.mutations.quota_of(
        controller.image, user, client_id, strict=strict, burst_seconds=BURST_SECONDS, now_ms=controller.now_ms
    )


def charged(asked: MutationQuota, partitions: int) -> ErrorCode:
    try:
        asked.charge(partitions)
    except RefusedError as refusal:
        return refusal.error.code
    return ErrorCode.none


def test_a_strict_quota_refuses_when_the_bucket_is_below_zero_and_not_before() -> None:
    controller = LeadingController()
    limit(controller, 2.0, user="alice")
    first = quota(controller)
    assert charged(first, 20) is ErrorCode.none  # all that was saved up
    assert charged(first, 30) is ErrorCode.none  # at zero it is not exhausted
    assert first.throttle_ms == 0
    assert charged(first, 1) is ErrorCode.throttling_quota_exceeded
    assert first.throttle_ms == 15_000
    controller.now_ms += 14_999
    assert charged(quota(controller), 1) is ErrorCode.throttling_quota_exceeded
    controller.now_ms += 1
    assert charged(quota(controller), 1) is ErrorCode.none


def test_a_permissive_quota_grants_everything_and_lets_the_client_wait() -> None:
    controller = LeadingController()
    limit(controller, 2.0, user="alice")
    asked = quota(controller, strict=False)
    assert [charged(asked, 20), asked.throttle_ms] == [ErrorCode.none, 0]
    assert [charged(asked, 30), asked.throttle_ms] == [ErrorCode.none, 15_000]
    assert [charged(asked, 2), asked.throttle_ms] == [ErrorCode.none, 16_000]


def test_nobody_saves_up_more_than_the_windows_allow() -> None:
    controller = LeadingController()
    limit(controller, 1.0, user="alice")
    charged(quota(controller), 1)
    controller.now_ms += 10**9
    assert charged(quota(controller), BURST_SECONDS + 1) is ErrorCode.none
    assert charged(quota(controller), 1) is ErrorCode.throttling_quota_exceeded


@pytest.mark.parametrize("rate", [1e-9, 1e-310])
@pytest.mark.parametrize("strict", [True, False])
def test_a_wait_fits_into_an_answer(rate: float, strict: bool) -> None:
    controller = LeadingController()
    limit(controller, rate, user="alice")
    asked = quota(controller, strict=strict)
    charged(asked, 10_000)
    charged(asked, 1)
    assert asked.throttle_ms == LONGEST_WAIT_MS


@pytest.mark.parametrize("rate", [0.0, -1.0])
@pytest.mark.parametrize("strict", [True, False])
def test_a_rate_that_zookeeper_held_and_no_controller_takes_is_waited_for_as_long_as_an_answer_can_say(
    rate: float, strict: bool
) -> None:
    controller = LeadingController()
    limit(controller, rate, user="alice")
    quota(controller, strict=False).charge(1)
    controller.now_ms += 60_000
    asked = quota(controller, strict=strict)
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
    controller = LeadingController()
    for below, entity in enumerate(LEVELS[level:]):
        limit(controller, 1000.0 if below else 1.0, **entity)
    charged(quota(controller), BURST_SECONDS + 5)
    asked = quota(controller)
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
    controller = LeadingController()
    limit(controller, 1.0, **entity)
    charged(quota(controller), 1_000)
    others = [(user, client) for user in ("alice", "bob") for client in ("app", "other", "")]
    held = [other for other in others if charged(quota(controller, *other), 0) is not ErrorCode.none]
    assert sorted(held) == sorted([("alice", "app"), *shared_with])


def test_a_client_without_an_id_has_no_quota_by_id() -> None:
    controller = LeadingController()
    limit(controller, 1.0, client_id=None)
    limit(controller, 1.0, user="alice", client_id=None)
    for _ in range(2):
        assert charged(quota(controller, client_id=""), 1_000) is ErrorCode.none


def test_a_new_rate_holds_at_once_and_a_lifted_quota_no_more() -> None:
    controller = LeadingController()
    limit(controller, 1.0, user="alice")
    charged(quota(controller), BURST_SECONDS + 100)
    limit(controller, 50.0, user="alice")
    asked = quota(controller)
    charged(asked, 1)
    assert asked.throttle_ms == 2_000
    lift(controller, user="alice")
    assert charged(quota(controller), 1) is ErrorCode.none


def test_buckets_that_are_full_again_are_forgotten() -> None:
    """A client may call itself anything: what it leaves behind has to end."""
    controller = LeadingController()
    limit(controller, 1.0, client_id=None)
    for number in range(20 * PRUNE_ABOVE):
        charged(quota(controller, client_id=f"app-{number}"), 1)
        controller.now_ms += 10
    assert len(controller.mutations) <= 3 * PRUNE_ABOVE
