"""The obstacles to reopening a finished migration that lie in the brokers' property files of migration mode. Pure.

No broker tells them: one in KRaft mode runs with another file. Sources: Kafka 3.9's ``KafkaConfig.validateValues``
(ids, ``inter.broker.protocol.version``), ``StandardAuthorizer`` (reads its entries from a metadata log alone),
``DelegationTokenManagerZk`` (computes each HMAC from the secret).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from migrator.config.checks import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from migrator.config.keys import FLAG, IBP
from migrator.config.providers import PLACEHOLDER
from migrator.config.reading import super_users_of
from migrator.observe.status import Gate
from migrator.records.versions import parse_version

RESERVED_BROKER_MAX_ID = 1000
"""Kafka's default of ``reserved.broker.max.id``."""
AUTHORIZER, SUPER_USERS, CONNECT = "authorizer.class.name", "super.users", "zookeeper.connect"
TOKEN_SECRETS = ("delegation.token.secret.key", "delegation.token.master.key")
Properties = Mapping[str, str]


def broker_file_gates(files: Mapping[str, Properties], controller: Properties, version: str) -> tuple[Gate, ...]:
    """All gates that have to be open before a broker is started with one of these files.

    :param files: property files of brokers for migration mode, by name.
    :param controller: the property file of a controller.
    :param version: the metadata.version of the cluster, such as ``3.9-IV0``.
    """

    def gate(name: str, judge: Callable[[Properties], Iterator[str]], fine: str, remedy: str) -> Gate:
        found = [f"{file}: {what}" for file, properties in files.items() for what in judge(properties)]
        return Gate(f"files, {name}", not found, "; ".join(found) or fine, remedy)

    return (
        gate("mode", _mode, "every file is one of migration mode", "Give the files of before KRaft mode"),
        gate(
            "protocol version",
            lambda file: _protocol(file, version),
            f"every file has {IBP} of the cluster's metadata.version, {version}",
            f"Write {IBP}={version}. Without that line a broker takes the default of its release",
        ),
        gate(
            "ids",
            _ids,
            "every id is one that ZooKeeper mode takes",
            "Set broker.id.generation.enable=false, or raise reserved.broker.max.id",
        ),
        gate(
            "authorizer",
            lambda file: _authorizer(file, controller),
            "every file has an authorizer and super users as the controllers have them",
            f"Set {AUTHORIZER}={ACL_AUTHORIZER}, and super.users of the controllers",
        ),
        gate(
            "secrets",
            lambda file: _secret(file, controller),
            "every file has the secret of delegation tokens that the controllers have",
            f"Set {TOKEN_SECRETS[0]} as the controllers have it: with another one, no token is valid any more",
        ),
    )


def _mode(file: Properties) -> Iterator[str]:
    if file.get("process.roles"):
        yield "it is of KRaft mode (process.roles)"
    if file.get(FLAG, "").strip().lower() != "true":
        yield f"{FLAG} is not true"
    if not file.get(CONNECT):
        yield f"{CONNECT} is not set"


def _protocol(file: Properties, version: str) -> Iterator[str]:
    text = file.get(IBP, "")
    with suppress(ValueError):
        if parse_version(text).level == parse_version(version).level:
            return
    yield f"{IBP} is {text or 'not set'}, and the metadata.version of the cluster is {version}"


def _ids(file: Properties) -> Iterator[str]:
    if file.get("broker.id.generation.enable", "true").strip().lower() == "false":
        return
    most = _number(file.get("reserved.broker.max.id", "")) or RESERVED_BROKER_MAX_ID
    number = _number(file.get("broker.id") or file.get("node.id", ""))
    if number is not None and number > most:
        yield f"broker.id {number} is above reserved.broker.max.id ({most})"


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None


def _authorizer(file: Properties, controller: Properties) -> Iterator[str]:
    name = file.get(AUTHORIZER, "")
    if name == STANDARD_AUTHORIZER:
        yield f"{AUTHORIZER} is {name}, which has no access control list in ZooKeeper mode"
    if controller.get(AUTHORIZER) and not name:
        yield f"{AUTHORIZER} is not set, and the controllers have one: everybody could do everything"
    own, theirs = (super_users_of(each.get(SUPER_USERS, "")) for each in (file, controller))
    if name and own != theirs:
        yield f"{SUPER_USERS} differ from those of the controllers in {', '.join(sorted(own ^ theirs))}"


def _secret(file: Properties, controller: Properties) -> Iterator[str]:
    own, theirs = (next((each[key] for key in TOKEN_SECRETS if each.get(key)), "") for each in (file, controller))
    if own != theirs and not any(PLACEHOLDER.search(each) for each in (own, theirs)):
        what = "differs from that of the controllers" if own and theirs else "is on one side only"
        yield f"{TOKEN_SECRETS[0]} {what}"
