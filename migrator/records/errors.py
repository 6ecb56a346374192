"""What goes wrong when bytes are not what Kafka writes."""

from __future__ import annotations

from migrator.errors import MigratorError


class TooLongError(MigratorError):
    """A text that no record can hold. Kafka's readers end at a longer one: it must never get into a log."""


class CorruptRecordsError(MigratorError):
    """Bytes that do not decode. Whoever knows where they came from (a file, a peer) turns this into an error of
    that place.

    :param what: one sentence, without a final full stop.
    :param position: byte position in the buffer that was handed in, where it is known.
    """

    def __init__(self, what: str, position: int | None = None) -> None:
        super().__init__(what if position is None else f"{what} (at byte {position})")
        self.what = what
        self.position = position
