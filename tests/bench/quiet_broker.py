"""A light broker that only notes when it was told what, so that a benchmark measures the controller and not it.

Decoding 10 MB of UpdateMetadata in Python takes longer than a controller takes to send it.
"""

from __future__ import annotations

import struct
import time
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode

from migrator.drill.light.broker import LightBroker, LightBrokerOptions
from migrator.values import value
from migrator.wire.legacy.messages import UpdateType
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, build, response_type

_HEAD = struct.Struct(">i?iq")
_ANSWERS: dict[int, dict[str, Any]] = {
    LEADER_AND_ISR: {"topics": []},
    UPDATE_METADATA: {},
    STOP_REPLICA: {"partition_errors": []},
}


@value
class Heard:
    """One control request. ``at`` is monotonic time in seconds, when all of it was there."""

    at: float
    api_key: int
    type: UpdateType
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    size: int


def head_of(api_key: int, body: memoryview, at: float) -> Heard:
    """What the first bytes (and of UpdateMetadata the last) of LeaderAndIsr 7, UpdateMetadata 8, StopReplica 4 say."""
    controller_id, _, controller_epoch, broker_epoch = _HEAD.unpack_from(body)
    kind = UpdateType.UNKNOWN
    if api_key == LEADER_AND_ISR:
        kind = UpdateType(body[_HEAD.size])
    elif api_key == UPDATE_METADATA and bytes(body[-4:-1]) == b"\x01\x00\x01":  # one tagged field: 0, of one byte
        kind = UpdateType(body[-1])
    return Heard(at, api_key, kind, controller_id, controller_epoch, broker_epoch, len(body))


class QuietBroker(LightBroker):
    """Takes every request of a controller that it would take, and looks at its first bytes."""

    raw_apis: ClassVar[frozenset[int]] = frozenset(_ANSWERS)

    def __init__(self, options: LightBrokerOptions) -> None:
        super().__init__(options)
        self.heard: list[Heard] = []

    async def handle(self, context: RequestContext, body: Any) -> Any:
        """See `LightBroker`."""
        heard = head_of(context.api_key, body, time.monotonic())
        self.requests[context.api_key] += 1
        error = self.epoch_error(heard.controller_epoch, heard.broker_epoch)
        if error is ErrorCode.none:
            self._controller_epoch = heard.controller_epoch
            self.heard.append(heard)
        else:
            self.errors[error] += 1
        response = response_type(context.api_key, context.api_version)
        return build(response, error_code=error, **_ANSWERS[context.api_key])

    def first(self, api_key: int, controller_id: int, kind: UpdateType | None = None) -> float | None:
        """When a controller first sent such a request; None while it has not."""
        return next(
            (
                heard.at
                for heard in self.heard
                if heard.api_key == api_key and heard.controller_id == controller_id and kind in (None, heard.type)
            ),
            None,
        )
