"""Logins by SCRAM from the published image; an unknown user cannot be told from a known one."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from migrator.config.load import typed_settings
from migrator.controller.token_index import token_hmac
from migrator.image.model import EMPTY_IMAGE, MetadataImage, ScramCredential, ScramKey
from migrator.node.access.accounts import PublishedAccounts
from migrator.records.metadata import DelegationTokenRecord, ScramMechanism
from migrator.wire.principal import Principal
from migrator.wire.sasl import NotReadyError, ScramClient, scram_credential
from migrator.wire.sasl.scram import ScramServer

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SECRET = "the clusters key"
KAFKA_SALT = b"1b2v3c9dk3jf8s7ak2m4n5b6v7"


class Node:
    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.published = image
        self.has_reached_high_watermark = True


def with_users(*users: str, salt: bytes = KAFKA_SALT, iterations: int = 4096) -> MetadataImage:
    keys = {
        ScramKey(ScramMechanism.SHA_256, user): scram_credential(SHA_256, "pencil", salt, iterations) for user in users
    }
    return replace(EMPTY_IMAGE, scram=Map(keys))


def accounts(node: Node, now: float = 10.0, **keys: str) -> PublishedAccounts:
    settings = typed_settings({name.replace("_", "."): text for name, text in keys.items()}, "a test")
    return PublishedAccounts(settings, "a cluster", node, lambda: now)


def logged_in(source: PublishedAccounts, client: ScramClient, mechanism: str) -> Any:
    server = ScramServer(mechanism, source)
    client.step(server.step(client.step(server.step(client.first()))))
    return server.outcome


def test_users_come_and_go_with_the_image() -> None:
    node = Node()
    source = accounts(node)
    assert source.user(SHA_256, "alice").authenticated is None
    node.published = with_users("alice")
    found = logged_in(source, ScramClient(SHA_256, "alice", "pencil"), SHA_256)
    assert found.principal == Principal("User", "alice")
    assert source.user(SHA_512, "alice").authenticated is None
    node.published = with_users("bob")
    assert source.user(SHA_256, "alice").authenticated is None


def test_before_the_node_knows_what_is_committed_it_cannot_tell() -> None:
    node = Node(with_users("alice"))
    node.has_reached_high_watermark = False
    source = accounts(node, delegation_token_secret_key=SECRET)
    for ask in (source.user, source.token):
        with pytest.raises(NotReadyError):
            ask(SHA_256, "alice")


def test_a_credential_of_too_few_iterations_is_none() -> None:
    account = accounts(Node(with_users("alice", iterations=4095))).user(SHA_256, "alice")
    assert account.authenticated is None
    assert "iterations" in account.why


@pytest.mark.parametrize(("salt", "iterations"), [(KAFKA_SALT, 8192), (bytes(range(64)), 4096), (b"\xff" * 16, 10_000)])
def test_names_that_nobody_has_look_like_others(salt: bytes, iterations: int) -> None:
    known = with_users("alice", "bob", salt=salt, iterations=iterations)
    one, other = accounts(Node(known)), accounts(Node(known))
    made_up = one.user(SHA_256, "mallory").credential
    assert made_up == other.user(SHA_256, "mallory").credential  # on every controller, and after a restart
    assert made_up.salt != one.user(SHA_256, "mallet").credential.salt
    assert made_up.iterations == iterations
    assert len(made_up.stored_key) == len(known.scram[ScramKey(ScramMechanism.SHA_256, "bob")].stored_key)
    if salt == KAFKA_SALT:
        assert made_up.salt.isalnum()
        assert 20 < len(made_up.salt) <= 26
    else:
        assert len(made_up.salt) == len(salt)


def test_a_change_of_others_does_not_show_who_is_not_there() -> None:
    node = Node(with_users("alice", "bob"))
    source = accounts(node)
    before = source.user(SHA_256, "mallory").credential
    node.published = with_users("alice", "bob", "carol")
    assert source.user(SHA_256, "mallory").credential == before
    guessed = accounts(Node(with_users("alice")), delegation_token_secret_key="another")
    assert guessed.user(SHA_256, "mallory").credential != before


def token(**fields: Any) -> DelegationTokenRecord:
    known = DelegationTokenRecord("User:al:ice", "User:bob", (), 0, 20_000, 15_000, "token-1")
    return replace(known, **fields)


def hmac_of(token_id: str) -> str:
    return base64.b64encode(token_hmac(SECRET.encode(), token_id)).decode()


def with_token(found: DelegationTokenRecord) -> MetadataImage:
    return replace(EMPTY_IMAGE, tokens=Map({found.token_id: found}))


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_token_is_its_owner_until_it_expires(mechanism: str) -> None:
    node = Node(with_token(token()))
    source = accounts(node, delegation_token_secret_key=SECRET)
    client = ScramClient(mechanism, "token-1", hmac_of("token-1"), is_token=True)
    outcome = logged_in(source, client, mechanism)
    assert outcome.principal == Principal("User", "al:ice", token_authenticated=True)
    assert outcome.expires_at_ms == 15_000
    node.published = with_token(token(expiration_timestamp=30_000))  # renewed, but for no longer than its maximum
    assert source.token(mechanism, "token-1").authenticated == replace(outcome, expires_at_ms=20_000)
    node.published = EMPTY_IMAGE  # revoked
    assert source.token(mechanism, "token-1").authenticated is None


def test_tokens_that_do_not_count_look_like_those_that_do() -> None:
    node = Node(with_token(token()))
    valid = accounts(node, delegation_token_secret_key=SECRET).token(SHA_256, "token-1")
    late = accounts(node, now=15.1, delegation_token_secret_key=SECRET).token(SHA_256, "token-1")
    assert valid.authenticated is not None
    assert late.authenticated is None
    assert late.credential == valid.credential
    unknown = accounts(node, delegation_token_secret_key=SECRET).token(SHA_256, "token-2")
    assert unknown.authenticated is None
    assert unknown.credential.stored_key != bytes(32)
    off = accounts(node).token(SHA_256, "token-1")
    assert off.authenticated is None
    assert isinstance(off.credential, ScramCredential)
