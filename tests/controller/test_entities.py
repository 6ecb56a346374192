"""Quotas, SCRAM credentials, ACLs, delegation tokens, producer ids. Cases of Kafka's ClientQuotaControlManagerTest,
ScramControlManagerTest, AclControlManagerTest, DelegationTokenControlManagerTest, ProducerIdControlManagerTest."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.apis.fields import time_out
from migrator.config.types import Secret
from migrator.controller.acls import AclFilter, create_acls, delete_acls
from migrator.controller.decision import RefusedError
from migrator.controller.delegation_tokens import (
    LATEST_MS,
    MAX_RENEWER_BYTES,
    MAX_RENEWERS,
    CreatedToken,
    CreateTokenRequest,
    TokenChange,
    create_token,
    expire_token,
    renew_token,
)
from migrator.controller.producer_ids import (
    MAX_PRODUCER_ID,
    AllocatedProducerIds,
    ProducerIdsRequest,
    allocate_producer_ids,
)
from migrator.controller.quotas import AlterQuotasRequest, QuotaAlteration, alter_quotas
from migrator.controller.schedule import sweep_tokens
from migrator.controller.scram import AlterScramRequest, ScramDeletion, ScramUpsertion, alter_scram
from migrator.image.model import Acl, ScramKey
from migrator.records.metadata import (
    ProducerIdsRecord,
    QuotaEntity,
    RemoveDelegationTokenRecord,
    ScramMechanism,
)
from tests.controller.support.leading_controller import LeadingController

USER = (QuotaEntity("user", "alice"),)
BOTH = (QuotaEntity("user", "alice"), QuotaEntity("client-id", None))
IP = (QuotaEntity("ip", "1.2.3.4"),)
RATE = (("producer_byte_rate", 5.0),)


def quota(
    controller: LeadingController, entity: tuple[QuotaEntity, ...], *values: tuple[str, float | None]
) -> ErrorCode:
    request = AlterQuotasRequest((QuotaAlteration(entity, values),))
    ((_, error),) = controller.decide(alter_quotas, request)
    return error.code


def test_quotas_are_set_changed_and_removed() -> None:
    controller = LeadingController()
    assert quota(controller, USER, ("producer_byte_rate", 5.0), ("request_percentage", 0.5)) == 0
    assert quota(controller, BOTH, *RATE) == 0
    assert quota(controller, IP, ("connection_creation_rate", 5.0)) == 0
    assert controller.image.quotas[frozenset(USER)] == {"producer_byte_rate": 5.0, "request_percentage": 0.5}
    written = controller.next_offset
    assert quota(controller, USER, *RATE) == 0
    assert quota(controller, USER, ("consumer_byte_rate", None)) == 0
    assert controller.next_offset == written, "what is so already leaves no record"
    assert quota(controller, USER, ("producer_byte_rate", None), ("request_percentage", None)) == 0
    assert frozenset(USER) not in controller.image.quotas


def test_the_longest_long_means_no_limit() -> None:
    """Kafka compares as doubles, where it is 2**63; the next double above is refused."""
    controller = LeadingController()
    assert quota(controller, USER, ("producer_byte_rate", 2.0**63)) == 0
    assert quota(controller, USER, ("producer_byte_rate", 2.0**63 + 2048)) is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ((), RATE),
        ((QuotaEntity("group", "g"),), RATE),
        ((QuotaEntity("user", ""),), RATE),
        ((*USER, QuotaEntity("user", "bob")), RATE),
        ((*USER, *IP), RATE),
        (IP, RATE),
        (USER, (("connection_creation_rate", 5.0),)),
        ((QuotaEntity("ip", "1.2.3.999"),), (("connection_creation_rate", 5.0),)),
        ((QuotaEntity("ip", "not a host"),), (("connection_creation_rate", 5.0),)),
        (IP, (("connection_creation_rate", 2.0**31),)),
        (USER, (("producer_byte_rate", 0.0),)),
        (USER, (("producer_byte_rate", -1.0),)),
        (USER, (("producer_byte_rate", float("nan")),)),
        (USER, (("producer_byte_rate", 1.5),)),
        (USER, (("producer_byte_rate", 1e300),)),
        (USER, (("nope", 1.0),)),
        (USER, (*RATE, *RATE)),
        (USER, (("consumer_byte_rate", 1.0), ("producer_byte_rate", 0.0))),
    ],
)
def test_quota_refusals_leave_nothing_behind(entity: Any, values: Any) -> None:
    controller = LeadingController()
    assert quota(controller, entity, *values) is ErrorCode.invalid_request
    assert not controller.image.quotas


def test_an_entity_named_twice_and_validate_only() -> None:
    controller = LeadingController()
    twice = (QuotaAlteration(USER, RATE), QuotaAlteration(USER, (("producer_byte_rate", 6.0),)))
    ((_, error),) = controller.decide(alter_quotas, AlterQuotasRequest(twice, validate_only=True))
    assert error.code is ErrorCode.invalid_request
    assert not controller.image.quotas
    controller.decide(alter_quotas, AlterQuotasRequest(twice))
    assert controller.image.quotas[frozenset(USER)] == {"producer_byte_rate": 5.0}


def upsertion(user: str = "alice", mechanism: int = 1, iterations: int = 4096) -> ScramUpsertion:
    return ScramUpsertion(user, mechanism, iterations, b"salt", b"salted password")


def scram(controller: LeadingController, request: AlterScramRequest) -> dict[str, ErrorCode]:
    return {user: error.code for user, error in controller.decide(alter_scram, request)}


@pytest.mark.parametrize(("mechanism", "algorithm"), [(1, "sha256"), (2, "sha512")])
def test_scram_keys_are_derived_as_rfc_5802_says(mechanism: int, algorithm: str) -> None:
    controller = LeadingController()
    assert scram(controller, AlterScramRequest(upsertions=(upsertion(mechanism=mechanism),))) == {"alice": 0}
    stored = controller.image.scram[ScramKey(mechanism, "alice")]
    client_key = hmac.new(b"salted password", b"Client Key", algorithm).digest()
    assert stored.stored_key == hashlib.new(algorithm, client_key).digest()
    assert stored.server_key == hmac.new(b"salted password", b"Server Key", algorithm).digest()
    assert (stored.salt, stored.iterations) == (b"salt", 4096)
    assert scram(controller, AlterScramRequest((ScramDeletion("alice", mechanism),))) == {"alice": 0}
    assert not controller.image.scram


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (AlterScramRequest((ScramDeletion("alice", 1),)), ErrorCode.resource_not_found),
        (AlterScramRequest((ScramDeletion("alice", 0),)), ErrorCode.unsupported_sasl_mechanism),
        (AlterScramRequest((), (upsertion(user=""),)), ErrorCode.unacceptable_credential),
        (AlterScramRequest((), (upsertion(mechanism=3),)), ErrorCode.unsupported_sasl_mechanism),
        (AlterScramRequest((), (upsertion(iterations=4095),)), ErrorCode.unacceptable_credential),
        (AlterScramRequest((), (upsertion(iterations=16385),)), ErrorCode.unacceptable_credential),
        (AlterScramRequest((), (upsertion(), upsertion(mechanism=2))), ErrorCode.duplicate_resource),
    ],
)
def test_scram_refusals(request_: AlterScramRequest, expected: ErrorCode) -> None:
    controller = LeadingController()
    assert set(scram(controller, request_).values()) == {expected}
    assert not controller.image.scram


def test_scram_user_altered_twice_keeps_what_it_had() -> None:
    controller = LeadingController()
    scram(controller, AlterScramRequest(upsertions=(upsertion(),)))
    request = AlterScramRequest((ScramDeletion("alice", 1),), (upsertion(iterations=8192), upsertion(user="bob")))
    assert scram(controller, request) == {"alice": ErrorCode.duplicate_resource, "bob": ErrorCode.none}
    assert controller.image.scram[ScramKey(ScramMechanism.SHA_256, "alice")].iterations == 4096


def test_scram_below_its_level_and_in_representations() -> None:
    request = AlterScramRequest(upsertions=(upsertion(),))
    assert scram(LeadingController(level=10), request) == {"alice": ErrorCode.unsupported_version}
    assert "salted" not in repr(request)


ACL = Acl(2, "topic", 3, "User:a", "*", 3, 3)
PREFIXED = Acl(2, "to", 4, "User:b", "h", 4, 2)
ANY_TOPIC = Acl(2, "*", 3, "User:a", "*", 3, 3)


def test_acls_are_created_once() -> None:
    controller = LeadingController()
    assert {error.code for error in controller.decide(create_acls, (ACL, PREFIXED, ACL))} == {ErrorCode.none}
    assert sorted(controller.image.acls.values(), key=repr) == sorted((ACL, PREFIXED), key=repr)
    written = controller.next_offset
    controller.decide(create_acls, (ACL,))
    assert controller.next_offset == written


@pytest.mark.parametrize(
    "acl",
    [
        Acl(1, "t", 3, "User:a", "*", 3, 3),
        Acl(0, "t", 3, "User:a", "*", 3, 3),
        Acl(2, "t", 2, "User:a", "*", 3, 3),
        Acl(2, "t", 1, "User:a", "*", 3, 3),
        Acl(2, "t", 3, "User:a", "*", 1, 3),
        Acl(2, "t", 3, "User:a", "*", 3, 1),
        Acl(2, "", 3, "User:a", "*", 3, 3),
        Acl(4, "other", 3, "User:a", "*", 3, 3),
    ],
)
def test_invalid_acls(acl: Acl) -> None:
    controller = LeadingController()
    (error,) = controller.decide(create_acls, (acl,))
    assert error.code is ErrorCode.invalid_request
    assert not controller.image.acls


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), {ACL, PREFIXED, ANY_TOPIC}),
        (AclFilter(resource_type=3), set()),
        (AclFilter(resource_name="topic"), {ACL}),
        (AclFilter(resource_name="topic", pattern_type=2), {ACL, PREFIXED, ANY_TOPIC}),
        (AclFilter(resource_name="tomato", pattern_type=2), {PREFIXED, ANY_TOPIC}),
        (AclFilter(resource_name="topic", pattern_type=4), set()),
        (AclFilter(pattern_type=4), {PREFIXED}),
        (AclFilter(principal="User:a"), {ACL, ANY_TOPIC}),
        (AclFilter(host="h"), {PREFIXED}),
        (AclFilter(operation=4), {PREFIXED}),
        (AclFilter(permission_type=3), {ACL, ANY_TOPIC}),
    ],
)
def test_delete_acls_finds_what_matches(wanted: AclFilter, found: set[Acl]) -> None:
    controller = LeadingController()
    controller.decide(create_acls, (ACL, PREFIXED, ANY_TOPIC))
    (deleted, again) = controller.decide(delete_acls, (wanted, wanted))
    assert set(deleted.acls) == set(again.acls) == found
    assert set(controller.image.acls.values()) == {ACL, PREFIXED, ANY_TOPIC} - found


@pytest.mark.parametrize(
    "changes", [{"resource_type": 0}, {"pattern_type": 9}, {"operation": 0}, {"permission_type": 0}]
)
def test_unknown_acl_filters(changes: dict[str, int]) -> None:
    (deleted,) = LeadingController().decide(delete_acls, (AclFilter(**changes),))  # type: ignore[arg-type]
    assert deleted.error.code is ErrorCode.invalid_request


TOKEN_REQUEST = CreateTokenRequest("User:a", "User:a", ("User:r",), -1)


def token_controller(**settings: Any) -> LeadingController:
    return LeadingController(delegation_token_secret_key=Secret("secret"), **settings)


def issued(controller: LeadingController, **changes: Any) -> CreatedToken:
    fields = {"requester": "User:a", "owner": "User:a", "renewers": ("User:r",), "max_lifetime_ms": -1}
    return controller.decide(create_token, CreateTokenRequest(**{**fields, **changes}))


def test_tokens_live_as_configured_or_shorter() -> None:
    controller = token_controller()
    created = issued(controller)
    assert created.hmac == hmac.new(b"secret", created.token.token_id.encode(), "sha512").digest()
    assert controller.image.tokens[created.token.token_id] == created.token
    assert created.token.max_timestamp == controller.wall_ms + 604_800_000
    assert created.token.expiration_timestamp == controller.wall_ms + 86_400_000
    short = issued(controller, max_lifetime_ms=1000).token
    assert (short.max_timestamp, short.expiration_timestamp) == (controller.wall_ms + 1000, controller.wall_ms + 1000)
    assert issued(controller, max_lifetime_ms=2**62).token.max_timestamp == controller.wall_ms + 604_800_000
    assert "hidden" in repr(created)


def test_lifetimes_near_the_end_of_a_long_are_those_of_the_year_9999() -> None:
    """Stock adds past it; here the answer holds no later moment, and its token lives."""
    last = 2**63 - 1
    controller = token_controller(delegation_token_max_lifetime_ms=last, delegation_token_expiry_time_ms=last)
    created = issued(controller)
    assert (created.token.max_timestamp, created.token.expiration_timestamp) == (LATEST_MS, LATEST_MS)
    assert time_out(LATEST_MS).year == 9999
    token_id = created.token.token_id
    theirs = replace(created.token, max_timestamp=last, expiration_timestamp=last)
    for change in (renew_token, expire_token):
        controller.write(theirs)  # of a stock controller, or from ZooKeeper
        assert controller.decide(change, TokenChange("User:a", created.hmac, 2**62)) == LATEST_MS
        assert controller.image.tokens[token_id].expiration_timestamp == LATEST_MS


@pytest.mark.parametrize(
    "renewers",
    [tuple(f"User:{number}" for number in range(MAX_RENEWERS + 1)), ("User:" + "r" * MAX_RENEWER_BYTES,)],
    ids=["many", "long"],
)
def test_a_token_names_few_renewers(renewers: tuple[str, ...]) -> None:
    """Every user may create tokens: with 6 MB of renewers each, the log grew by 50 MB/s."""
    controller = token_controller()
    with pytest.raises(RefusedError) as refusal:
        issued(controller, renewers=renewers)
    assert refusal.value.error.code is ErrorCode.policy_violation
    assert not controller.image.tokens
    assert issued(controller, renewers=renewers[: MAX_RENEWERS - 1] if len(renewers) > 1 else ("User:r",))


def test_the_tokens_of_an_owner_take_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand with as many renewers as may be took a controller 520 MiB."""
    controller = token_controller()
    created = [issued(controller) for _ in range(3)]
    most = controller.index.tokens.bytes_of("User:a") + 100
    monkeypatch.setattr("migrator.controller.delegation_tokens.MAX_BYTES_OF_OWNER", most)
    controller.decide(renew_token, TokenChange("User:a", created[0].hmac, 5))
    with pytest.raises(RefusedError, match="tokens of User:a would take more than") as refusal:
        issued(controller, requester="User:admin")
    assert refusal.value.error.code is ErrorCode.policy_violation
    assert issued(controller, owner="User:b")
    controller.decide(expire_token, TokenChange("User:a", created[1].hmac, -1))
    with pytest.raises(RefusedError, match="Expire some of them first"):
        issued(controller, renewers=tuple(f"User:{number}" for number in range(MAX_RENEWERS)))
    assert issued(controller)


def test_renew_and_expire() -> None:
    controller = token_controller()
    created = issued(controller)
    token_id = created.token.token_id
    controller.wall_ms += 1000
    assert controller.decide(renew_token, TokenChange("User:r", created.hmac, 5)) == controller.wall_ms + 5
    assert controller.image.tokens[token_id].expiration_timestamp == controller.wall_ms + 5
    assert controller.decide(renew_token, TokenChange("User:a", created.hmac, -1)) == controller.wall_ms + 86_400_000
    assert controller.decide(expire_token, TokenChange("User:a", created.hmac, 7)) == controller.wall_ms + 7
    assert controller.decide(expire_token, TokenChange("User:a", created.hmac, -1)) == controller.wall_ms
    assert not controller.image.tokens


@pytest.mark.parametrize("change", [renew_token, expire_token])
def test_what_a_request_costs_does_not_grow_with_the_tokens_there_are(
    change: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody who has logged in may make tokens, and ask about them."""
    controller = token_controller()
    created = [issued(controller) for _ in range(20)]
    made: list[str] = []

    def counted(key: bytes, message: bytes, algorithm: str) -> bytes:
        made.append(algorithm)
        return hmac.new(key, message, algorithm).digest()

    monkeypatch.setattr(hmac, "digest", counted)
    with pytest.raises(RefusedError):
        change(controller.image, TokenChange("User:a", b"of nobody", 5), controller.context())
    change(controller.image, TokenChange("User:a", created[-1].hmac, 5), controller.context())
    assert not made


@pytest.mark.parametrize("change", [renew_token, expire_token])
def test_token_refusals(change: Callable[..., Any]) -> None:
    controller = token_controller()
    created = issued(controller)

    def code(requester: str, digest: bytes) -> ErrorCode:
        with pytest.raises(RefusedError) as refusal:
            change(controller.image, TokenChange(requester, digest, 5), controller.context())
        return refusal.value.error.code

    assert code("User:a", b"x") is ErrorCode.delegation_token_not_found
    assert code("User:other", created.hmac) is ErrorCode.delegation_token_owner_mismatch
    controller.wall_ms = created.token.expiration_timestamp + 1
    assert code("User:a", created.hmac) is ErrorCode.delegation_token_expired


@pytest.mark.parametrize(
    ("controller", "renewers", "expected"),
    [
        (LeadingController(), ("User:r",), ErrorCode.delegation_token_auth_disabled),
        (token_controller(level=13), ("User:r",), ErrorCode.unsupported_version),
        (token_controller(), ("Group:r",), ErrorCode.invalid_principal_type),
    ],
    ids=["off", "level", "renewer"],
)
def test_token_creation_refused(controller: LeadingController, renewers: tuple[str, ...], expected: ErrorCode) -> None:
    with pytest.raises(RefusedError) as refusal:
        issued(controller, renewers=renewers)
    assert refusal.value.error.code is expected


def test_sweep_removes_expired_tokens_only() -> None:
    controller = token_controller()
    gone, kept = issued(controller, max_lifetime_ms=5), issued(controller)
    controller.wall_ms += 6
    records = tuple(sweep_tokens(controller.image, controller.context(), controller.image.tokens).records)
    assert records == (RemoveDelegationTokenRecord(gone.token.token_id),)
    assert kept.token.token_id in controller.image.tokens


def test_tokens_are_swept_in_an_order_that_depends_on_no_hash() -> None:
    controller = token_controller()
    ids = sorted(issued(controller, max_lifetime_ms=5).token.token_id for _ in range(8))
    controller.wall_ms += 6
    records = sweep_tokens(controller.image, controller.context(), controller.image.tokens).records
    assert tuple(records) == tuple(map(RemoveDelegationTokenRecord, ids))


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    controller = LeadingController()
    epoch = controller.register(1)
    request = ProducerIdsRequest(1, epoch)
    assert controller.decide(allocate_producer_ids, request) == AllocatedProducerIds(0, 1000)
    assert controller.decide(allocate_producer_ids, request) == AllocatedProducerIds(1000, 1000)
    assert controller.history[-1] == ProducerIdsRecord(1, epoch, 2000)


@pytest.mark.parametrize(("broker_id", "epoch_step"), [(1, 1), (2, 0)])
def test_producer_ids_for_a_stale_broker(broker_id: int, epoch_step: int) -> None:
    controller = LeadingController()
    epoch = controller.register(1)
    with pytest.raises(RefusedError) as refusal:
        controller.decide(allocate_producer_ids, ProducerIdsRequest(broker_id, epoch + epoch_step))
    assert refusal.value.error.code is ErrorCode.stale_broker_epoch


def test_producer_ids_exhausted() -> None:
    controller = LeadingController()
    epoch = controller.register(1)
    controller.write(ProducerIdsRecord(1, epoch, MAX_PRODUCER_ID - 999))
    with pytest.raises(RefusedError) as refusal:
        controller.decide(allocate_producer_ids, ProducerIdsRequest(1, epoch))
    assert refusal.value.error.code is ErrorCode.unknown_server_error
