"""A partition's move to other brokers, asked of whichever controller there is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from migrator.drill.controller_channel import ControllerChannel
from migrator.errors import OperatorError
from migrator.wire.schemas import build, request_type

ALTER_PARTITION_REASSIGNMENTS = (45, 0)
ANSWER_SECONDS = 30.0


async def reassign(channel: ControllerChannel, topic: str, brokers: Sequence[int]) -> list[int]:
    """Move partition 0 to the last brokers, the last one first; gives its replicas to be.

    :raises OperatorError: it was refused.
    """
    replicas = list(reversed(brokers))[:2]
    wanted = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": tuple(replicas)}]}]
    request = build(
        request_type(*ALTER_PARTITION_REASSIGNMENTS), topics=wanted, timeout=dt.timedelta(seconds=ANSWER_SECONDS)
    )
    answer = await channel.request(request, timeout_seconds=ANSWER_SECONDS)
    codes = {answer.error_code, *(part.error_code for each in answer.responses for part in each.partitions)}
    if codes != {ErrorCode.none}:
        raise OperatorError(f"the reassignment was refused: {answer}", where=topic)
    return replicas
