"""Whether what a controller holds in memory of its log is what a replay of this log comes to."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from migrator.image.digest import MODULUS, digest_steps
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.image.replay import replay, snapshot_image
from migrator.node.core import NodeCore
from migrator.records.control import KRaftVoters, voters_records
from tests.simulation.whole.breach import check
from tests.simulation.whole.committed import is_equal

if TYPE_CHECKING:
    from migrator.log.metadata_log import MetadataLog
    from migrator.records.batch import Batch
    from tests.simulation.whole.committed import Committed


def check_replay(name: str, core: NodeCore, committed: Committed) -> None:
    """Of one whose image has all of its log, uncommitted records included."""
    base, start = _beginning(core)
    batches: list[Batch] = []
    epochs: list[tuple[int, int]] = []
    named_at = -1
    for batch in core.storage.batches_from(min(start, core.storage.log.end_offset())):
        header = batch.header
        if header.base_offset < start:
            continue
        if not epochs or header.leader_epoch != epochs[-1][0]:
            epochs.append((header.leader_epoch, header.base_offset))
        if header.is_control:
            named = (offset for offset, record in voters_records(batch) if isinstance(record, KRaftVoters))
            named_at = max(named, default=named_at)
        batches.append(batch)
        written = (header.base_offset, header.crc, header.leader_epoch)
        index = bisect_left(committed.batches, (header.base_offset, 0, 0))
        image = committed.images.get(header.next_offset - 1)
        if committed.batches[index : index + 1] == [written] and image is not None:
            base, batches = image, []  # that is a replay of the same bytes already
    loader = ImageLoader(base)
    for batch in batches:
        replay(loader, batch)
    _check_books(name, core.storage.log, start, epochs, named_at)
    image, end = core.metadata.image, core.storage.log.end_offset()
    is_same = is_equal(loader.speculative, image) or not sum(digest_steps(loader.speculative, image)) % MODULUS
    check(
        "the_image_is_a_replay_of_its_own_log",
        is_same,
        f"{name} has another image at offset {image.provenance.offset} than its log up to {end}",
    )


def _check_books(name: str, log: MetadataLog, start: int, epochs: list[tuple[int, int]], named_at: int) -> None:
    """What the log knows of its own records without a look at them.

    :param start: of those that were looked at; ``epochs`` are what they say, and ``named_at`` is the last of them that
        names voters.
    """
    known = [(one.epoch, one.start_offset) for one in log._epochs.starts if one.start_offset > start]
    found = [one for one in epochs if one[1] > start]
    check(
        "the_epochs_are_those_of_the_log", known == found, f"{name} knows {known}, its log from {start} on has {found}"
    )
    voters_at = log.membership().offset
    is_named = voters_at == named_at if named_at >= 0 else voters_at < start
    check("the_voters_are_those_of_the_log", is_named, f"{name} has those of offset {voters_at}, named at {named_at}")


def _beginning(core: NodeCore) -> tuple[MetadataImage, int]:
    ids = core.storage.log.snapshots()
    if not ids:
        return EMPTY_IMAGE, core.storage.log.start_offset()
    return snapshot_image(ids[-1].offset, ids[-1].epoch, core.storage.snapshot(ids[-1])), ids[-1].offset
