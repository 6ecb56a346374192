"""The obstacles to reopening a finished migration that lie in the brokers' property files of migration mode. Pure.

No broker tells them: one in KRaft mode runs with another file. Sources: Kafka 3.9's ``KafkaConfig.validateValues``
(ids, ``inter.broker.protocol.version``), ``StandardAuthorizer`` (reads its entries from a metadata log alone),
``DelegationTokenManagerZk`` (computes each HMAC from the secret).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from migrator.config.checks import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from migrator.config.kafkas_broker import GENERATION, RESERVED
from migrator.config.keys import AUTHORIZER, BROKER_ID, CONNECT, FLAG, IBP, ROLES, TOKEN_SECRET
from migrator.config.providers import PLACEHOLDER
from migrator.config.reading import Properties, is_on, is_set, number_of, super_users_of, text_of
from migrator.config.super_users import KEY as SUPER_USERS
from migrator.observe.status import Gate
from migrator.records.versions import parse_version


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
            f"no file has another {IBP} than the cluster's metadata.version, {version}",
            f"Write {IBP}={version}. Without that line a broker takes the default of its release",
        ),
        gate(
            "ids",
            _ids,
            "every id is one that ZooKeeper mode takes",
            f"Set {GENERATION}=false, or raise {RESERVED}",
        ),
        gate(
            "authorizer",
            lambda file: _authorizer(file, controller),
            "every file has an authorizer and super users as the controllers have them",
            f"Set {AUTHORIZER}={ACL_AUTHORIZER}, and {SUPER_USERS} of the controllers",
        ),
        gate(
            "secrets",
            lambda file: _secret(file, controller),
            "every file has the secret of delegation tokens that the controllers have",
            f"Set {TOKEN_SECRET} as the controllers have it: with another one, no token is valid any more",
        ),
    )


def _mode(file: Properties) -> Iterator[str]:
    if is_set(file, ROLES):
        yield f"it is of KRaft mode ({ROLES})"
    if not is_on(file, FLAG) and not _is_open(file, FLAG):
        yield f"{FLAG} is not true"
    if not is_set(file, CONNECT):
        yield f"{CONNECT} is not set"


def _is_open(file: Properties, key: str) -> bool:
    """Whether the value is a placeholder, so that its real value is not known here."""
    return PLACEHOLDER.search(text_of(file, key)) is not None


def _protocol(file: Properties, version: str) -> Iterator[str]:
    text = text_of(file, IBP) if is_set(file, IBP) else ""
    if _is_open(file, IBP):
        return
    with suppress(ValueError):
        if parse_version(text).level == parse_version(version).level:
            return
    yield f"{IBP} is {text or 'not set'}, and the metadata.version of the cluster is {version}"


def _ids(file: Properties) -> Iterator[str]:
    if text_of(file, GENERATION).lower() == "false" or _is_open(file, GENERATION) or _is_open(file, RESERVED):
        return
    number, most = number_of(file, BROKER_ID), number_of(file, RESERVED)
    if most is None:  # a value that Kafka refuses: then its default
        most = number_of({}, RESERVED) or 0
    if number is not None and number > most:
        yield f"{BROKER_ID} {number} is above {RESERVED} ({most})"


def _authorizer(file: Properties, controller: Properties) -> Iterator[str]:
    name = text_of(file, AUTHORIZER)
    if name == STANDARD_AUTHORIZER:
        yield f"{AUTHORIZER} is {name}, which has no access control list in ZooKeeper mode"
    if is_set(controller, AUTHORIZER) and not name:
        yield f"{AUTHORIZER} is not set, and the controllers have one: everybody could do everything"
    texts = [text_of(each, SUPER_USERS) for each in (file, controller)]
    own, theirs = map(super_users_of, texts)
    if name and own != theirs and not any(map(PLACEHOLDER.search, texts)):
        yield f"{SUPER_USERS} differ from those of the controllers in {', '.join(sorted(own ^ theirs))}"


def _secret(file: Properties, controller: Properties) -> Iterator[str]:
    own, theirs = (text_of(each, TOKEN_SECRET) for each in (file, controller))
    if own != theirs and not any(PLACEHOLDER.search(each) for each in (own, theirs)):
        what = "differs from that of the controllers" if own and theirs else "is on one side only"
        yield f"{TOKEN_SECRET} {what}"
