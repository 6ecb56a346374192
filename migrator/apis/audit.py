"""Makes the lines of the authorizer's log about one request: one JSON object each.

Denials are always logged. Of allowed operations, changes and the first CLUSTER_ACTION of a connection are logged, the
others on request. Operations that an answer only shows are no decisions, as in Kafka. Lines are made when the request
is answered, so they have the answer's error. Source: ``StandardAuthorizerData.logAuditMessage``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, zip_longest
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.apis.authorization import Question, Trail
from migrator.apis.call import ApiKind
from migrator.apis.ordered import KAFKA_NAMES, TEXT_MAX, OrderedPart, clipped, error_of, parts_of
from migrator.apis.registry import APIS
from migrator.errors import PeerError
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.values import value
from migrator.wire.schemas import request_type

NAMES_MAX: Final = 50
"""The most names in one list of a line; more names go into further lines."""
PARTS_MAX: Final = 20_000
"""The most parts of one request: an order can concern every partition. A line says when parts were left out."""
NOT_ANSWERED: Final = "NOT_ANSWERED"
"""Stands for the error when the connection is closed or this process stops. The order may have been carried out."""
CHANGES: Final = frozenset(
    {
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.ALTER_CONFIGS,
        AclOperation.CREATE_TOKENS,
    }
)
"""Operations that change something, if the request is not read-only."""


@value
class Sender:
    """The sender of a request. ``by`` and ``by_host``: the broker that has forwarded the request of its client, or
    ""."""

    principal: str
    host: str
    listener: str
    by: str = ""
    by_host: str = ""


@value
class AuditedRequest:
    """A request and its answer; None without an answer, because the connection is closed or this process stops."""

    key: int
    version: int
    body: Any
    answer: Any = None


@value
class AuditLine:
    """``content`` becomes the JSON object. ``is_rationed``: every caller can cause such lines, so beyond a bound they
    are only counted."""

    content: dict[str, Any]
    is_rationed: bool


@value
class _Group:
    """Questions that differ only by name."""

    operation: AclOperation
    kind: ResourceType
    names: list[str]


@value
class _Share:
    """The items of a group with the same error: their names and the order."""

    error: str | None
    names: list[str]
    about: list[str]


def audit_lines(
    sender: Sender, exchange: AuditedRequest, trail: Trail, *, everything: bool, is_first_action: bool
) -> Iterator[AuditLine]:
    """
    :param everything: whether allowed operations that change nothing are logged, too.
    :param is_first_action: whether no CLUSTER_ACTION of this connection was logged before.
    """
    allowed = [
        each for each in trail.allowed if everything or _is_said(each, exchange.key, is_first_action=is_first_action)
    ]
    if not allowed and not trail.denied:
        return
    head = _head(sender, exchange)
    parts = list(islice(parts_of(exchange.key, exchange.body, exchange.answer), PARTS_MAX + 1))
    if len(parts) > PARTS_MAX:
        head["cut"] = True
    for group in _groups(allowed):
        is_rationed = group.kind is ResourceType.DELEGATION_TOKEN
        for share in _shares(group, exchange, parts):
            for names, about in _chunks(group, share):
                yield AuditLine(_content(head, group, names, share.error, about, "allowed"), is_rationed)
    for group in _groups(trail.denied):
        for share in _shares(group, exchange, parts):
            (names, about), *more = _chunks(group, share)
            content = _content(head, group, names, share.error, about, "denied")
            content["count"] += trail.denied_more + sum(len(rest) for rest, _ in more)
            yield AuditLine(content, is_rationed=True)


def _is_said(question: Question, key: int, *, is_first_action: bool) -> bool:
    operation, _, _ = question
    if operation is AclOperation.CLUSTER_ACTION:
        return is_first_action
    return operation in CHANGES and APIS[key].kind is not ApiKind.READ


def _head(sender: Sender, exchange: AuditedRequest) -> dict[str, Any]:
    head: dict[str, Any] = {"principal": clipped(sender.principal), "host": sender.host, "listener": sender.listener}
    if sender.by:
        head |= {"forwarded_by": clipped(sender.by), "forwarded_from": sender.by_host}
    head |= {"api": api_name(exchange.key, exchange.version), "version": exchange.version}
    if getattr(exchange.body, "validate_only", False):
        head["validate_only"] = True
    return head


def _content(
    head: Mapping[str, Any], group: _Group, names: list[str], error: str | None, about: list[str], outcome: str
) -> dict[str, Any]:
    content = {
        **head,
        "operation": group.operation.name,
        "resource_type": KAFKA_NAMES[group.kind],
        "pattern": "LITERAL",
        "resources": [clipped(name) for name in names],
        "outcome": outcome,
        "count": len(names),
    }
    if error is not None:
        content["error"] = error
    if about:
        content["about"] = [clipped(text, TEXT_MAX) for text in about]
    return content


def _groups(questions: Iterable[Question]) -> Iterator[_Group]:
    found: dict[tuple[AclOperation, ResourceType], list[str]] = {}
    for operation, kind, name in questions:
        found.setdefault((operation, kind), []).append(name)
    for (operation, kind), names in found.items():
        yield _Group(operation, kind, names)


def _shares(group: _Group, exchange: AuditedRequest, parts: list[OrderedPart]) -> Iterable[_Share]:
    """Divide a group by error. A topic has the error of its parts; other resources share all parts of the request."""
    whole = _error_text(exchange)
    found: dict[str | None, _Share] = {}
    if group.kind is ResourceType.TOPIC:
        by_topic: dict[str, list[OrderedPart]] = {name: [] for name in group.names}
        for part in parts:
            by_topic.get(part.topic, []).append(part)
        for name, mine in by_topic.items():
            error = next((part.error for part in mine if part.error is not ErrorCode.none), None)
            known = whole if mine or len(parts) <= PARTS_MAX else None
            text = known if error is None else error.name.upper()
            share = found.setdefault(text, _Share(text, [], []))
            share.names.append(name)
            share.about.extend(part.text for part in mine if part.text != clipped(name))
        return found.values()
    for part in parts:
        text = part.error.name.upper()
        found.setdefault(text, _Share(text, list(group.names), [])).about.append(part.text)
    return found.values() or [_Share(whole, list(group.names), [])]


def _error_text(exchange: AuditedRequest) -> str | None:
    """The error of the whole answer; None for an answer that is encoded already."""
    if exchange.answer is None:
        return NOT_ANSWERED
    if isinstance(exchange.answer, list):
        return None
    name: str = (error_of(exchange.answer) or ErrorCode.none).name
    return name.upper()


def _chunks(group: _Group, share: _Share) -> list[tuple[list[str], list[str]]]:
    """Divide names and parts into lists that fit into a line."""
    names, about = (
        [rows[at : at + NAMES_MAX] for at in range(0, len(rows), NAMES_MAX)] for rows in (share.names, share.about)
    )
    if group.kind is not ResourceType.TOPIC:  # the same resource again, with more of the order
        names = names[:1] * max(1, len(about))
    return list(zip_longest(names, about, fillvalue=[]))


def api_name(key: int, version: int) -> str:
    """Kafka's name of the API."""
    try:
        name: str = request_type(key, version).__name__
    except PeerError:
        return f"API {key}"
    return name.removesuffix("Request")
