"""The log that a comparison follows: from a controller's directory, or fetched from running controllers.

`verify` calls `metadata_tail` once and advances it. Only committed records are fetched, into files of this process;
nothing is written to a controller.
"""

from __future__ import annotations

from pathlib import Path

from migrator.verify.kraft.files import end_of_log
from migrator.verify.kraft.log_tail import LogTail
from migrator.verify.kraft.observed import BEGIN, Observed, is_address, observed
from migrator.verify.places import place


class ObservedTail(LogTail):
    """Fetches, before each step, the records committed since the last one."""

    def __init__(self, quorum: Observed, scratch: Path, until: int | None = None) -> None:
        self._quorum = quorum
        self._scratch = scratch
        self._reached = BEGIN
        self._fetch()
        super().__init__(scratch, until)

    def advance(self) -> None:
        """Read what was appended since (see `LogTail`)."""
        self._fetch()
        super().advance()

    def _fetch(self) -> None:
        self._reached = self._quorum.fetch(self._scratch, start=self._reached)


def metadata_tail(metadata: str, config: str | None, scratch: Path, until: int | None) -> LogTail:
    """Follow the log that ``--metadata`` names.

    :param scratch: an empty directory for fetched files.
    :raises OperatorError: the log can't be read, or no controller answers.
    """
    if is_address(metadata):
        return ObservedTail(observed(metadata, config), scratch, until)
    return LogTail(place(metadata), until)


def end_of_metadata(metadata: str, config: str | None) -> int:
    """The offset after the last record of the log; errors as in `metadata_tail`."""
    return observed(metadata, config).end_offset() if is_address(metadata) else end_of_log(place(metadata))
