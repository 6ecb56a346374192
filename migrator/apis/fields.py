"""Small conversions between kio's field types and ours: kio gives zero Uuids as None, and times as datetime."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Final

from migrator.records.uuid import ZERO_UUID, Uuid

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def uuid_in(given: uuid.UUID | None) -> Uuid:
    return ZERO_UUID if given is None else Uuid(given.bytes)


def uuid_out(ours: Uuid) -> uuid.UUID | None:
    return None if ours == ZERO_UUID else uuid.UUID(bytes=bytes(ours))


def time_out(milliseconds: int) -> dt.datetime:
    """A moment for a message, from milliseconds since 1970."""
    return _EPOCH + dt.timedelta(milliseconds=milliseconds)


def milliseconds_in(duration: dt.timedelta) -> int:
    return duration // dt.timedelta(milliseconds=1)
