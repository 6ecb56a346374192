"""Follows the metadata log of a directory that a controller may be writing to, batch by batch.

`read_image` replays everything each time; `LogTail` keeps its place, and reports every step, so that its user knows
which values a leaf had between two readings.

The log that a comparison follows: from a controller's directory, or fetched from running controllers.
"""

from __future__ import annotations

from pathlib import Path

from migrator.errors import InvariantViolation, OperatorError
from migrator.image.loader import ImageLoader, Step
from migrator.image.model import Changes, MetadataImage
from migrator.image.replay import replay
from migrator.log.listing import list_log
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.records.batch import HEADER_SIZE, Batch
from migrator.records.errors import CorruptRecordsError
from migrator.records.runs import checked_batches
from migrator.values import value
from migrator.verify.kraft.files import COMPARE, end_of_log, read_image
from migrator.verify.kraft.observed import BEGIN, Observed, is_address, observed
from migrator.verify.places import place

RESTARTS_MAX = 5
"""How often in a row a file may disappear while it is read, because a snapshot has replaced it."""


@value
class _BatchPosition:
    """The last batch that was read: file, position in it, its header's bytes, and where the next one begins."""

    path: Path
    position: int
    header: bytes
    end: int


class LogTail:
    """The image at the end of the log, and the steps on the way there.

    :param directory: a metadata directory, or its ``__cluster_metadata-0``.
    :param until: the last offset to read; None for the whole log.
    :raises OperatorError: as in `read_image`; from `advance`, too.
    """

    def __init__(self, directory: Path, until: int | None = None) -> None:
        self._directory = directory if directory.name == DIRECTORY_NAME else directory / DIRECTORY_NAME
        self._until = until
        self.on_step: Step | None = None
        self.generation = 0
        """How often the log had to be read anew, because it was truncated, or now begins after our place."""
        self._restart()
        self.advance()

    @property
    def image(self) -> MetadataImage:
        """The image of everything read so far, without an open transaction."""
        return self._loader.published

    @property
    def end_offset(self) -> int:
        """The offset after the last record read, control records included."""
        return self._next

    def advance(self) -> None:
        """Read the records that were appended since the last call."""
        for _ in range(RESTARTS_MAX):
            try:
                if self._is_cut():
                    self._restart()
                self._read_on()
            except FileNotFoundError:
                self._restart()
            else:
                return
        raise OperatorError(
            "the files of the log disappear while verify reads them", where=str(self._directory), remedy="Try again"
        )

    def _restart(self) -> None:
        self.generation += 1
        image = read_image(self._directory, until=self._until)
        self._loader = ImageLoader(image, on_step=self._step)
        self._next = image.provenance.offset + 1
        self._place: _BatchPosition | None = None

    def _step(self, before: MetadataImage, after: MetadataImage, changes: Changes) -> None:
        if self.on_step is not None:
            self.on_step(before, after, changes)

    def _is_cut(self) -> bool:
        """Whether the last batch that was read is no longer at its place: the log was truncated behind us."""
        if self._place is None:
            return False
        with self._place.path.open("rb") as file:
            file.seek(self._place.position)
            return file.read(HEADER_SIZE) != self._place.header

    def _read_on(self) -> None:
        segments = list_log(self._directory).segments
        first = max((i for i, path in enumerate(segments) if int(path.stem) <= self._next), default=None)
        if first is None:
            if segments:
                raise FileNotFoundError  # a snapshot has replaced it
            return
        for path in segments[first:]:
            self._read_segment(path, is_last=path is segments[-1])
        self._loader.commit(max(self._loader.end_offset, self.image.provenance.offset + 1))

    def _read_segment(self, path: Path, *, is_last: bool) -> None:
        expected, position = int(path.stem), 0
        if self._place is not None and self._place.path == path:
            expected, position = self._next, self._place.end
        with path.open("rb") as file:
            file.seek(position)
            content = file.read()
        try:
            batches = checked_batches(content, next_offset=expected, partial_tail=is_last)
        except CorruptRecordsError as error:
            raise OperatorError(str(error), where=str(path), remedy=COMPARE) from error
        for batch in batches:
            if self._until is not None and batch.header.last_offset > self._until:
                return
            if batch.header.base_offset >= self._next:
                self._apply(path, batch)
                self._next = batch.header.next_offset
            end = position + batch.header.size
            self._place = _BatchPosition(path, position, bytes(batch.data[:HEADER_SIZE]), end)
            position = end

    def _apply(self, path: Path, batch: Batch) -> None:
        try:
            replay(self._loader, batch)
        except (CorruptRecordsError, InvariantViolation) as error:
            raise OperatorError(str(error), where=str(path), remedy=COMPARE) from error


class ObservedTail(LogTail):
    """The tail of a log that is fetched from controllers: each step fetches the records committed since the last."""

    def __init__(self, quorum: Observed, scratch: Path, until: int | None = None) -> None:
        self._quorum = quorum
        self._scratch = scratch
        self._reached = BEGIN
        self._fetch()
        super().__init__(scratch, until)

    def advance(self) -> None:
        """Read the records that were appended since the last call (see `LogTail`)."""
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
