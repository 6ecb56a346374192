"""Writes orders into the journal, with their givers: orders over Kafka's protocol, and orders by changed property
files.

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
from migrator.apis.ordered import Part, clipped, parts_of
from migrator.clock import wall_ms
from migrator.config.keys import FLAG
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
"""What an answer has where the change came to pass, or may have come to pass."""
PARTS_MAX: Final = 20
ORDERING_SETTINGS: Final = (
    FLAG,
    "migrator.finish.require.verify",
    "controller.quorum.voters",
)
"""Keys that an operator sets, and restarts a controller, to give an order."""


class KafkaOrders:
    """One per node.

    :param journal: what was ordered is noted there.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def tell(self, context: RequestContext, by: RequestContext | None, body: Any, answer: Any, trail: Trail) -> None:
        """A request has its answer, or will have none (None). What was refused is no order.

        :param by: of the Envelope that it came in.
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
        self._journal.note(  # the order has been taken: its client hears so
            wall_ms(),
            JOURNAL_KIND,
            f"{name}: {'; '.join(map(clipped, said[:PARTS_MAX]))}{more}{outcome}",
            forwarded_by=forwarded,
            **orderer.details,
        )


def opened_journal(settings: Settings) -> Journal:
    """The journal of this controller, with the orders of the property file, if they are others than at the last start.

    :raises OperatorError: the disk refuses.
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


def _taken(context: RequestContext, body: Any, answer: Any) -> Iterator[Part]:
    key = context.api_key
    if answer is None:  # nobody knows what came of it
        answer = build(response_type(key, context.api_version))
    for part in parts_of(key, body, answer):
        if key != REASSIGN or part.topic == METADATA_TOPIC:
            # Only a change that was taken has a text beside this error; UpdateRaftVoter has no text in any answer.
            changed_meanwhile = part.error is ErrorCode.not_leader_or_follower and bool(
                getattr(answer, "error_message", None)
            )
            if part.error in TAKEN or changed_meanwhile:
                yield part
