"""AlterClientQuotas: sets and removes quotas of users, clients and addresses. Pure.

`migrator.apis.security` calls it. All changes of an entry of a request are made, or none. Each value is checked first:
its key fits the entity, and it is in the bounds of Kafka. Source: Kafka's ``ClientQuotaControlManager`` and
``QuotaConfigs``.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.context import Context
from migrator.controller.decision import NO_ERROR, ApiError, Decision, RefusedError, decided
from migrator.controller.mutation_quotas import CLIENT_ID, CONTROLLER_MUTATION_RATE, USER
from migrator.image.model import MetadataImage, QuotaKey
from migrator.records.metadata import ClientQuotaRecord, MetadataRecord, QuotaEntity
from migrator.values import value

IP: Final = "ip"

_LONG, _INT, _DOUBLE = 2**63 - 1, 2**31 - 1, None
_CLIENT_KEYS: Final[dict[str, int | None]] = {
    "producer_byte_rate": _LONG,
    "consumer_byte_rate": _LONG,
    "request_percentage": _DOUBLE,
    CONTROLLER_MUTATION_RATE: _DOUBLE,
}
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
_IP_KEYS: Final[dict[str, int | None]] = {CONNECTION_CREATION_RATE: _INT}
"""The keys with their highest whole number; None for keys that allow fractions."""

_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_FRACTION_TOLERATED: Final = 1e-6


@value
class QuotaAlteration:
    """``values``: key and new value, None to remove."""

    entity: tuple[QuotaEntity, ...]
    values: tuple[tuple[str, float | None], ...]


@value
class AlterQuotasRequest:
    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


def alter_quotas(
    image: MetadataImage, request: AlterQuotasRequest, _: Context
) -> Decision[tuple[tuple[QuotaKey, ApiError], ...]]:
    """Set and remove quotas, all or nothing for each entity. When a request names an entity twice, only the first
    change is made, and the answer is INVALID_REQUEST.

    :raises RefusedError: POLICY_VIOLATION.
    """
    results: dict[QuotaKey, ApiError] = {}
    records: list[MetadataRecord] = []
    for alteration in request.alterations:
        entity = frozenset(alteration.entity)
        try:
            if entity in results:
                raise _invalid(_duplicate(alteration.entity))
            records.extend(_entity_records(image, alteration))
        except RefusedError as refusal:
            results[entity] = refusal.error
        else:
            results[entity] = NO_ERROR
    return decided(tuple(results.items()), [] if request.validate_only else records)


def _entity_records(image: MetadataImage, alteration: QuotaAlteration) -> list[ClientQuotaRecord]:
    keys = [key for key, _ in alteration.values]
    if len(set(keys)) != len(keys):
        raise _invalid(_duplicate(alteration.entity))
    allowed = _allowed_keys(alteration.entity)
    current = image.quotas.get(frozenset(alteration.entity), {})
    records = []
    for key, wanted in alteration.values:
        if wanted is None:
            if key in current:
                records.append(ClientQuotaRecord(alteration.entity, key, 0.0, remove=True))
            continue
        _check_value(allowed, key, wanted)
        if current.get(key) != wanted:
            records.append(ClientQuotaRecord(alteration.entity, key, wanted, remove=False))
    return records


def _allowed_keys(entity: tuple[QuotaEntity, ...]) -> dict[str, int | None]:
    names = {part.entity_type: part.entity_name for part in entity}
    if not names:
        raise _invalid("Invalid empty client quota entity")
    if len(names) != len(entity):
        raise _invalid("Invalid client quota entity, an entity type is there twice")
    for entity_type, name in names.items():
        if entity_type not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise _invalid(f"Empty {entity_type} not supported")
    if IP not in names:
        return _CLIENT_KEYS
    if len(names) > 1:
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    ip = names[IP]
    if ip is not None and not is_address(ip):
        raise _invalid(f"{ip} is not a valid IP or resolvable host.")
    return _IP_KEYS


def is_address(text: str) -> bool:
    """Whether a text is an IP address or has the form of a host name. (Kafka resolves the name; a pure room cannot.)"""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        looks_numeric = re.fullmatch(r"[\d.]+", text) is not None
        return not looks_numeric and _HOST_NAME.fullmatch(text) is not None
    return True


def _check_value(allowed: dict[str, int | None], key: str, number: float) -> None:
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}")
    if not number > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    highest = allowed[key]
    if highest is not None:
        if number > float(highest):  # as Java compares doubles, where 2**63 equals the highest LONG
            kind = "an INT" if highest == _INT else "a LONG"
            raise _invalid(f"Proposed value for {key} is too large for {kind}.")
        if number % 1.0 > _FRACTION_TOLERATED:
            raise _invalid(f"{key} cannot be a fractional value.")


def _duplicate(entity: tuple[QuotaEntity, ...]) -> str:
    parts = ", ".join(
        f"{part.entity_type}={'null' if part.entity_name is None else part.entity_name}" for part in entity
    )
    return f"Ignoring duplicate entity ClientQuotaEntity(entries={{{parts}}})"


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_request, message)
