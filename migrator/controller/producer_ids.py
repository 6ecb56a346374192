"""AllocateProducerIds: gives a broker its next block of producer ids. Pure.

`migrator.apis.brokers` calls it. A block is never assigned twice, also after a change of the leader, because the next
id is in the image. Source: Kafka's ``ProducerIdControlManager``.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from migrator.controller.brokers_view import check_broker_epoch
from migrator.controller.context import Context
from migrator.controller.decision import Decision, RefusedError, decided
from migrator.image.model import MetadataImage
from migrator.records.metadata import ProducerIdsRecord
from migrator.values import value

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1


@value
class ProducerIdsRequest:
    broker_id: int
    broker_epoch: int


@value
class AllocatedProducerIds:
    first_id: int
    size: int


def allocate_producer_ids(
    image: MetadataImage, request: ProducerIdsRequest, _: Context
) -> Decision[AllocatedProducerIds]:
    """Assign the next block of producer ids to a broker. A block is never assigned twice.

    :raises RefusedError: STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR when all ids are used up.
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    first = max(image.producer_ids_next, 0)
    if first > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise RefusedError(ErrorCode.unknown_server_error, "No producer ids are left.")
    record = ProducerIdsRecord(request.broker_id, request.broker_epoch, first + BLOCK_SIZE)
    return decided(AllocatedProducerIds(first, BLOCK_SIZE), [record])
