"""The errors for bytes that are not Kafka's records, and for records that have no bytes."""

from __future__ import annotations

from migrator.errors import MigratorError


class TooLongError(MigratorError):
    """A text is too long for a record. Kafka's readers end at a longer one, so it must not get into a log."""


class CorruptRecordsError(MigratorError):
    """The bytes do not decode. The caller, which knows the file or peer that they come from, adds that to the error.

    :param what: one sentence, without a final full stop.
    :param position: byte position in the given buffer, if known.
    """

    def __init__(self, what: str, position: int | None = None) -> None:
        super().__init__(what if position is None else f"{what} (at byte {position})")
        self.what = what
        self.position = position
