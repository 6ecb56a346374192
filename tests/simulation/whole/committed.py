"""All that was ever committed, for the rules that compare: batches, images, and their proofs."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace

from migrator.image.digest import MODULUS, digest_steps
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.records.batch import Batch
from tests.simulation.whole.meaning import Meaning
from tests.simulation.whole.writes import Claim


@dataclass
class Hashed:
    """An image with its digest, which follows it by what differs from the image before: from the empty one on, so that
    the first image of a life, and one that a snapshot brings, are hashed as a whole."""

    image: MetadataImage = EMPTY_IMAGE
    digest: int = 0

    def follow(self, image: MetadataImage, true: Hashed | None = None) -> None:
        """
        :param true: what it has to be; the first image of a life is mostly equal to that, so it is not hashed again.
        """
        if true is not None and self.image is EMPTY_IMAGE and is_equal(true.image, image):
            self.digest = true.digest
        else:
            self.digest = (self.digest + sum(digest_steps(self.image, image))) % MODULUS
        self.image = image

    @property
    def is_whole(self) -> bool:
        """Whether nothing has been written into what images share."""
        return self.digest == sum(digest_steps(EMPTY_IMAGE, self.image)) % MODULUS


def is_equal(one: MetadataImage, other: MetadataImage) -> bool:
    """Whether two images have the same content, wherever they come from. Costs less than a digest."""
    return replace(one, provenance=other.provenance) == other


@dataclass
class Committed:
    """All records that were ever committed, as the first controller had them that said so."""

    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """First offset, checksum, epoch."""
    ends: list[int] = field(default_factory=list)
    targets: set[str] = field(default_factory=lambda: {""})
    """Of voters, that were ever set; empty for none."""
    image: Hashed = field(default_factory=Hashed)
    """What a replay comes to."""
    images: dict[int, MetadataImage] = field(default_factory=dict)
    """By last offset, at the ends of batches outside of transactions."""
    digests: dict[int, int] = field(default_factory=dict)
    """Of these."""
    claims: set[Claim] = field(default_factory=set)
    """What its records prove of what the client has asked for."""
    loader: ImageLoader = field(default_factory=lambda: ImageLoader(EMPTY_IMAGE))
    meaning: Meaning = field(default_factory=Meaning)
    counted: int = 0
    """The highest high watermark of a leader: nobody else finds out what is committed."""

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    def epoch_at(self, offset: int) -> int | None:
        """Of the record at an offset; None if no record there is committed."""
        index = bisect_right(self.ends, offset)
        return self.batches[index][2] if index < len(self.batches) else None

    def hashed_at(self, offset: int) -> Hashed | None:
        """The image whose last record is at an offset; None if nothing is published there."""
        digest = self.digests.get(offset)
        return None if digest is None else Hashed(self.images[offset], digest)

    def up_to(self, offset: int) -> Committed:
        """What is in front of an offset, which is the end of a batch outside of transactions. Of what was claimed,
        all: nobody is told again that it is written."""
        count = bisect_right(self.ends, offset)
        images = {at: image for at, image in self.images.items() if at < offset}
        hashed = Hashed()
        if images:
            hashed.follow(images[max(images)])
        return Committed(
            self.batches[:count],
            self.ends[:count],
            targets=set(self.targets),
            image=hashed,
            images=images,
            digests={at: self.digests[at] for at in images},
            claims=set(self.claims),
            loader=ImageLoader(hashed.image),
            meaning=Meaning.of(hashed.image),
        )


@dataclass(frozen=True)
class GivenUp:
    """A replica that was given up: what its own quorum has committed, and the epoch that it must never hear of."""

    committed: Committed
    epoch: int


def written(batch: Batch) -> tuple[int, int, int]:
    return batch.header.base_offset, batch.header.crc, batch.header.leader_epoch
