"""Writes orders into the journal, with the principals that gave them: orders over Kafka's protocol, and orders by
changed property files.

Requests that change voters, brokers or features count as orders. Other changes of clients (topics, configurations,
access control) are in the authorizer's log. Orders over gRPC or the socket are noted elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.apis.audit import NOT_ANSWERED, api_name
from migrator.apis.authorization import Trail
from migrator.apis.ordered import OrderedPart, clipped, parts_of
from migrator.clock import wall_ms
from migrator.config.keys import FLAG, KEEP_WAY_BACK
from migrator.config.settings import Settings
from migrator.observe.journal import Journal
from migrator.observe.status import Orderer
from migrator.rpc.identity import local_user
from migrator.wire.raft_codec import METADATA_TOPIC
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import build, response_type

JOURNAL_KIND = "order"
SETTINGS_JOURNAL_KIND = "settings"
REASSIGN: Final = 45
ORDERS: Final = frozenset({REASSIGN, 57, 64, 80, 81, 82})
"""AlterPartitionReassignments (of the metadata partition), UpdateFeatures, UnregisterBroker, and the voters'."""
TAKEN: Final = frozenset({ErrorCode.none, ErrorCode.request_timed_out})
"""The error codes of an answer when the change was made, or may have been made."""
PARTS_MAX: Final = 20
ORDERING_SETTINGS: Final = (
    FLAG,
    KEEP_WAY_BACK,
    "migrator.finish.require.verify",
    "controller.quorum.voters",
)
"""Keys of orders that an operator gives by changing a property file and restarting the controller."""


class KafkaOrders:
    """Writes orders over the Kafka protocol to the journal; one object per node.

    :param journal: receives the orders.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def tell(self, context: RequestContext, by: RequestContext | None, body: Any, answer: Any, trail: Trail) -> None:
        """Note the order in a request. ``answer`` is None when the request gets no answer. A refused request is no
        order.

        :param by: the principal of the Envelope that the request came in.
        """
        if context.api_key not in ORDERS or not trail.allowed or getattr(body, "validate_only", False):
            return
        said = [part.text for part in _taken(context, body, answer)]
        if not said:
            return
        name = api_name(context.api_key, context.api_version)
        more = f", and {len(said) - PARTS_MAX} more" if len(said) > PARTS_MAX else ""
        outcome = f" ({NOT_ANSWERED})" if answer is None else ""
        orderer = Orderer(clipped(str(context.principal)), context.peer_host)
        forwarded = "" if by is None else f"{clipped(str(by.principal))} at {by.peer_host}"
        self._journal.note(  # the order was accepted, and its client gets that answer
            wall_ms(),
            JOURNAL_KIND,
            f"{name}: {'; '.join(map(clipped, said[:PARTS_MAX]))}{more}{outcome}",
            forwarded_by=forwarded,
            **orderer.details,
        )


def opened_journal(settings: Settings) -> Journal:
    """Open the journal of this controller, and note the orders of the property file if they differ from those of the
    last start.

    :raises OperatorError: the disk fails.
    """
    journal = Journal(settings.metadata_directory, settings.migrator_journal_max_bytes)
    values = {key: getattr(settings, key.replace(".", "_")) for key in ORDERING_SETTINGS}
    text = "this controller is started with " + ", ".join(f"{key}={_shown(found)}" for key, found in values.items())
    before = [event.text for event in journal.after(-1) if event.kind == SETTINGS_JOURNAL_KIND]
    if before[-1:] != [text]:
        orderer = Orderer(local_user(os.geteuid()), settings.source)
        journal.note(wall_ms(), SETTINGS_JOURNAL_KIND, text, **orderer.details)
    return journal


def _shown(found: Any) -> str:
    if isinstance(found, bool):
        return str(found).lower()
    return ",".join(map(str, found)) if isinstance(found, tuple | list) else str(found)


def _taken(context: RequestContext, body: Any, answer: Any) -> Iterator[OrderedPart]:
    key = context.api_key
    if answer is None:  # the result is unknown
        answer = build(response_type(key, context.api_version))
    for part in parts_of(key, body, answer):
        if key != REASSIGN or part.topic == METADATA_TOPIC:
            # Only an accepted change has a text beside this error; UpdateRaftVoter has no text in any answer.
            changed_meanwhile = part.error is ErrorCode.not_leader_or_follower and bool(
                getattr(answer, "error_message", None)
            )
            if part.error in TAKEN or changed_meanwhile:
                yield part
