"""Whether the image at the end of a log is what a replay of this log comes to."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from migrator.image.digest import MODULUS, digest_steps
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.image.replay import replay, snapshot_image
from migrator.node.core import NodeCore
from tests.simulation.whole.breach import check

if TYPE_CHECKING:
    from tests.simulation.whole.committed import Committed


def check_image(name: str, core: NodeCore, committed: Committed) -> None:
    """Of one whose image has all of its log, uncommitted records included."""
    base, start = _beginning(core)
    batches = []
    for batch in core.storage.batches_from(min(start, core.storage.log.end_offset())):
        header = batch.header
        if header.base_offset < start:
            continue
        batches.append(batch)
        written = (header.base_offset, header.crc, header.leader_epoch)
        index = bisect_left(committed.batches, (header.base_offset, 0, 0))
        image = committed.images.get(header.next_offset - 1)
        if committed.batches[index : index + 1] == [written] and image is not None:
            base, batches = image, []  # that is a replay of the same bytes already
    loader = ImageLoader(base)
    for batch in batches:
        replay(loader, batch)
    image, end = core.metadata.image, core.storage.log.end_offset()
    difference = sum(digest_steps(loader.speculative, image)) % MODULUS
    check(
        "the_image_is_a_replay_of_its_own_log",
        not difference,
        f"{name} has another image at offset {image.provenance.offset} than its log up to {end}",
    )


def _beginning(core: NodeCore) -> tuple[MetadataImage, int]:
    ids = core.storage.log.snapshots()
    if not ids:
        return EMPTY_IMAGE, core.storage.log.start_offset()
    return snapshot_image(ids[-1].offset, ids[-1].epoch, core.storage.snapshot(ids[-1])), ids[-1].offset
