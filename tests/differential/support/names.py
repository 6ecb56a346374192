"""Common names for ids, epochs, offsets and times that each side has made itself.

`Names` learns from the records of one side's log, and rewrites answers and records. Then both sides can be compared as
they are.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, cast

from migrator.records import metadata as rec
from migrator.records.batch import iter_batches
from migrator.records.uuid import Uuid
from migrator.wire.shapes import shapes_of
from tests.differential.support.differences import OUR_VERSIONS, in_common

MADE_UP: Final = 1 << 64
"""Random ids are above it, those that the steps make up below."""
MINUTE_MS: Final = 60_000
FETCHED_SHOWN: Final = 60
_EPOCHS: Final = frozenset(("broker_epoch",))
_OFFSETS: Final = frozenset(
    (
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
        "finalized_features_epoch",
        "end_offset",
    )
)
_TIMES: Final = frozenset(("issue_timestamp", "max_timestamp", "expiration_timestamp"))
_SECRETS: Final = frozenset(("hmac", "token_id"))
_WORDS: Final = frozenset(("documentation",))
"""Their wording is each side's own; whether there are any is compared."""


class Names:
    """Learns from the records of one side's log.

    :param texts: what stands in this side's texts for itself (its directory, its port), and the common name.
    """

    def __init__(self, texts: dict[str, str], port: int) -> None:
        self.epochs: dict[int, int] = {}
        self.topics: dict[str, uuid.UUID] = {}
        self.hmacs: list[bytes] = []
        self.directory_id: uuid.UUID | None = None
        self._texts = texts
        self._port = port
        self._ids: dict[int, str] = {}
        self._epoch_names: dict[int, str] = {}
        self._seen: Counter[str] = Counter()
        self.asked_ms = 0
        """When the last request was sent."""

    def learn(self, record: rec.MetadataRecord) -> None:
        """Take note of what a record names."""
        if isinstance(record, rec.TopicRecord):
            self.topics[record.name] = uuid.UUID(bytes=bytes(record.topic_id))
            self._name(record.topic_id, f"id of {record.name}")
        elif isinstance(record, rec.RegisterBrokerRecord):
            if record.broker_epoch not in self._epoch_names:
                self._epoch_names[record.broker_epoch] = self._next(f"epoch of broker {record.broker_id}")
            self.epochs[record.broker_id] = record.broker_epoch
        elif isinstance(record, rec.AccessControlEntryRecord):
            entry = dataclasses.replace(cast("Any", record), id=None)
            self._name(record.id, f"id of {entry}")

    def learn_answer(self, message: Any) -> None:
        """Take note of a token that was made."""
        if type(message).__name__ == "CreateDelegationTokenResponse" and message.hmac:
            self.hmacs.append(message.hmac)

    def plain(self, value: Any, name: str = "") -> Any:
        """A message, a record or a part of one, without what may differ; arrays in an order of their own."""
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, value)
        if isinstance(value, (uuid.UUID, bytes)):
            return self._id(value) if isinstance(value, uuid.UUID) or len(value) == 16 else value
        if isinstance(value, (tuple, list)):
            return sorted(map(self.plain, value), key=repr)
        if hasattr(value, "__type__"):
            ours = {"max_version"} if getattr(value, "api_key", None) in OUR_VERSIONS else set()
            fields = {shape.name for shape in shapes_of(cast("Any", type(value)))} - ours
            return {field: self.plain(getattr(value, field), field) for field in fields}
        if dataclasses.is_dataclass(value):
            return self._structure(value)
        if isinstance(value, dt.datetime):
            return self._time(value)
        return self._text(value) if isinstance(value, str) else value

    def records(self, written: Iterable[tuple[rec.MetadataRecord, int]]) -> list[str]:
        """Records with their versions, in an order of their own, without those of no effect."""
        found = ((record, version) for record, version in written if not isinstance(record, rec.NoOpRecord))
        return sorted(f"v{version} {self.plain(record)}" for record, version in found)

    def _structure(self, value: Any) -> Any:
        """Arrays of numbers and ids in records, which are replicas, have an order that counts."""
        fields = {}
        for field in dataclasses.fields(value):
            content = getattr(value, field.name)
            if isinstance(content, tuple) and not any(map(dataclasses.is_dataclass, content)):
                fields[field.name] = [self.plain(item) for item in content]
            else:
                fields[field.name] = self.plain(content, field.name)
        return {type(value).__name__: fields}

    def _id(self, value: uuid.UUID | bytes) -> str:
        number = value.int if isinstance(value, uuid.UUID) else int.from_bytes(value, "big")
        return self._ids.get(number, "a random id" if number > MADE_UP else f"id {number}")

    def _name(self, value: Uuid, name: str) -> None:
        self._ids[int.from_bytes(value, "big")] = self._next(name)

    def _next(self, name: str) -> str:
        self._seen[name] += 1
        return f"{name}, no. {self._seen[name]}"

    def _text(self, value: str) -> str:
        for mine, common in self._texts.items():
            value = value.replace(mine, common)
        return value

    def _epoch(self, value: int) -> Any:
        return self._epoch_names.get(value, value)

    def _time(self, value: dt.datetime | int | None) -> Any:
        """In minutes since the last request was sent."""
        if value is None or value == -1:
            return None
        ms = value if isinstance(value, int) else round(value.timestamp() * 1000)
        return ms if ms <= 0 else f"sent {(ms - self.asked_ms + MINUTE_MS // 2) // MINUTE_MS:+} min"

    def _at(self, value: int) -> Any:
        return "port" if value == self._port else value


def _secret(_: Names, value: Any) -> Any:
    return bool(value)


def _message(names: Names, value: str | None) -> str:
    """None and "" say the same: nothing."""
    return in_common(names.plain(value or ""))


def _offset(_: Names, value: Any) -> Any:
    """Logs differ in their records of no effect, so that offsets do."""
    return "an offset" if value > 0 else value


def _fetched(names: Names, value: bytes | None) -> Any:
    """The first records of a fetched part of the log, in order."""
    if not value:
        return value
    batches = (batch for batch in iter_batches(value, partial_tail=True) if not batch.header.is_control)
    found = ((record, version) for batch in batches for record, version in batch.records())
    shown = (f"v{v} {names.plain(record)}" for record, v in found if not isinstance(record, rec.NoOpRecord))
    return list(islice(shown, FETCHED_SHOWN))


def _throttle(_: Names, value: dt.timedelta) -> str:
    """In hours: what is compared must not depend on the moment."""
    return f"throttled for {round(value / dt.timedelta(hours=1))} hours"


_SPECIAL: Final[dict[str, Callable[[Names, Any], Any]]] = {
    **dict.fromkeys(_SECRETS, _secret),
    **dict.fromkeys(_WORDS, _secret),
    "error_message": _message,
    **dict.fromkeys(_OFFSETS, _offset),
    **dict.fromkeys(_EPOCHS, Names._epoch),
    **dict.fromkeys(_TIMES, Names._time),
    "port": Names._at,
    "records": _fetched,
    "throttle_time": _throttle,
}
