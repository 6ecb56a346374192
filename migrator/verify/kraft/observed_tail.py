"""The log that a verdict follows: in a controller's directory, or fetched from running controllers."""

from __future__ import annotations

from pathlib import Path

from migrator.verify.kraft.files import end_of_log
from migrator.verify.kraft.log_tail import LogTail
from migrator.verify.kraft.observed import BEGIN, Observed, is_address, observed


class ObservedTail(LogTail):
    """Fetches what was committed since before each step."""

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
    """Follows what ``--metadata`` names.

    :param scratch: an empty directory for what has to be fetched.
    :raises OperatorError: it can't be read, or nobody answers.
    """
    if is_address(metadata):
        return ObservedTail(observed(metadata, config), scratch, until)
    return LogTail(Path(metadata), until)


def end_of_metadata(metadata: str, config: str | None) -> int:
    """The offset behind its last record; errors as `metadata_tail`."""
    return observed(metadata, config).end_offset() if is_address(metadata) else end_of_log(Path(metadata))
