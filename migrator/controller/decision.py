"""The result of a decision: a response, and the records that make it true.

A decision that refuses the whole request raises `RefusedError`. When a request names several items, each gets its own
`ApiError`, and only granted ones have records. Source: Kafka's ``ControllerResult``, ``ApiError``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from kio.schema.errors import ErrorCode

from migrator.controller.sessions import Sessions
from migrator.errors import MigratorError
from migrator.records.metadata import MetadataRecord
from migrator.values import value

R = TypeVar("R")
S = TypeVar("S")

MAX_RECORDS_PER_OPERATION = 10_000
"""More records than this in one user's operation are refused with POLICY_VIOLATION, as by Kafka."""

MESSAGE_MAX = 1_000


@value
class ApiError:
    """An error code with a sentence for people. With ``message`` None the client uses its own words.

    A message may quote the request, and a string in an older response version has at most 32,767 bytes. So it ends
    after `MESSAGE_MAX` characters.
    """

    code: ErrorCode
    message: str | None = None

    def __post_init__(self) -> None:
        if self.message is not None and len(self.message) > MESSAGE_MAX:
            self.message = f"{self.message[:MESSAGE_MAX]} ..."  # type: ignore[misc]

    @property
    def is_failure(self) -> bool:
        """Whether this is an error, and not the code for success."""
        return self.code is not ErrorCode.none


NO_ERROR = ApiError(ErrorCode.none)


class RefusedError(MigratorError):
    """The request, or the part of it under decision, is refused with this error code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.error = ApiError(code, message)


@value
class Decision(Generic[R]):
    """``records`` go to the log in order.

    If ``atomic``, they are a sequence for one batch: all or nothing. Otherwise they may be a generator over the image
    of the decision. The caller appends them in several batches and makes no other decision until the generator is
    exhausted. (Fencing a broker can change a hundred thousand partitions.)
    """

    response: R
    records: Iterable[MetadataRecord] = ()
    atomic: bool = True
    note: Callable[[Sessions, int, int], None] | None = None
    """Called after the append to update the soft state: with sessions, the log's last offset, and monotonic ms."""
    refusal: ApiError | None = None
    """The error when the whole request is refused, for responses with one or several errors."""

    def answering(self, response: S) -> Decision[S]:
        """This decision with another form of the response."""
        return Decision(response, self.records, self.atomic, self.note)


def decided(response: R, records: list[MetadataRecord]) -> Decision[R]:
    """A decision on a user's operation, in one batch.

    :raises RefusedError: POLICY_VIOLATION when there are too many records for one operation.
    """
    check_size(len(records))
    return Decision(response, tuple(records))


def check_size(records: int, sentence: str = "") -> None:
    """Refuse an operation of that many records when they are too many.

    :param sentence: Kafka's message in this case; this program's message follows it.
    :raises RefusedError: POLICY_VIOLATION.
    """
    if records > MAX_RECORDS_PER_OPERATION:
        raise RefusedError(
            ErrorCode.policy_violation,
            f"{sentence}{' ' if sentence else ''}The operation needs {records} records; at most "
            f"{MAX_RECORDS_PER_OPERATION} are allowed. Split it.",
        )
