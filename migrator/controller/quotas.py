"""AlterClientQuotas. Source: Kafka's ``ClientQuotaControlManager`` and ``QuotaConfigs``."""

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
"""Keys and their highest whole number; None takes fractions."""

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
    """Set and remove quotas, all or nothing for each entity. An entity named twice is granted the first time only, and
    its answer is INVALID_REQUEST.

    :raises RefusedError: POLICY_VIOLATION.
    """
    results: dict[QuotaKey, ApiError] = {}
    records: list[MetadataRecord] = []
    for alteration in request.alterations:
        entity = frozenset(alteration.entity)
        try:
            if entity in results:
                raise _invalid("The entity is named more than once.")
            records.extend(_entity_records(image, alteration))
        except RefusedError as refusal:
            results[entity] = refusal.error
        else:
            results[entity] = NO_ERROR
    return decided(tuple(results.items()), [] if request.validate_only else records)


def _entity_records(image: MetadataImage, alteration: QuotaAlteration) -> list[ClientQuotaRecord]:
    keys = [key for key, _ in alteration.values]
    if len(set(keys)) != len(keys):
        raise _invalid("A quota is named more than once.")
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
        raise _invalid("The entity is empty.")
    if len(names) != len(entity):
        raise _invalid("The entity has a type more than once.")
    for entity_type, name in names.items():
        if entity_type not in (USER, CLIENT_ID, IP):
            raise _invalid(f"There are no quotas for entities of type {entity_type!r}.")
        if name == "":
            raise _invalid(f"The {entity_type} is empty.")
    if IP not in names:
        return _CLIENT_KEYS
    if len(names) > 1:
        raise _invalid("Quotas of an ip can't be combined with user or client-id.")
    ip = names[IP]
    if ip is not None and not is_address(ip):
        raise _invalid(f"{ip!r} is neither an IP address nor a host name.")
    return _IP_KEYS


def is_address(text: str) -> bool:
    """Whether a text is an IP address or has the form of a host name. (Kafka resolves the name; this room can't.)"""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        looks_numeric = re.fullmatch(r"[\d.]+", text) is not None
        return not looks_numeric and _HOST_NAME.fullmatch(text) is not None
    return True


def _check_value(allowed: dict[str, int | None], key: str, number: float) -> None:
    if key not in allowed:
        raise _invalid(f"The entity has no quota {key!r}.")
    if not number > 0:
        raise _invalid(f"{key} must be above 0.")
    highest = allowed[key]
    if highest is not None:
        if number > highest:
            raise _invalid(f"{key} is too large.")
        if number % 1.0 > _FRACTION_TOLERATED:
            raise _invalid(f"{key} must be a whole number.")


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_request, message)
