"""Compares the images of the controllers, and each image with its log (ADR 34).

From time to time the leader names an offset. Each controller answers with its image's digest there, and the leader
compares the digests. A difference does not show which one is wrong. So each controller then compares its image with a
replay of its own log, as it also does every hour. A controller whose image differs from its log stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from migrator.clock import wall_ms
from migrator.errors import ExitCode, OperatorError
from migrator.image.digest import MODULUS, digest_steps
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.image.release import release
from migrator.image.replay import append_records, replay_snapshot
from migrator.node.metadata import MetadataRuntime
from migrator.node.quorum.storage import NodeStorage
from migrator.observe.status import ImagesStatus
from migrator.raft.transport import TransportError
from migrator.rpc.quorum_service import ImageDigest
from migrator.turns import Turn, in_turns

log = logging.getLogger(__name__)

JOURNAL_KIND = "images"
DUTY = 0.05
"""The largest share of the time that these comparisons may take."""
REPLAY_SECONDS = 3600.0
ROUND_SECONDS = 60.0
ASK_SECONDS = 1.0
REQUEST_SECONDS = 5.0
PATIENCE_SECONDS = 600.0
"""How long to wait for a digest: the first one of a large cluster visits every entity."""
AHEAD_MAX = 1 << 20

NOT_YET = ImageDigest(-1)


class Ask(Protocol):
    """`GrpcRaftTransport.image_digest`."""

    async def __call__(self, peer: int, offset: int, *, replay: bool, timeout: float) -> ImageDigest: ...


class ImageProof:
    """Computes the digest of one node's image, and compares the image with the node's log."""

    def __init__(self, node_id: int, metadata: MetadataRuntime, storage: NodeStorage) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._storage = storage
        self._known = (EMPTY_IMAGE, 0)
        """The image of the latest digest, from which the next one is computed, and that digest."""
        self._offset = -1
        self._reached: MetadataImage | None = None
        self._answer = NOT_YET
        self._replay_wanted = False
        self._woken = asyncio.Event()

    def image_digest(self, offset: int, *, replay: bool) -> ImageDigest:
        """The digest at an offset (see `QuorumView`). A newer call replaces an older one."""
        if offset != self._offset:
            self._offset, self._reached, self._answer = offset, None, NOT_YET
            self._metadata.hand_over_at(offset, self._take)
        if replay and not self._replay_wanted:
            self._replay_wanted = True
            self._woken.set()
        return self._answer

    def _take(self, image: MetadataImage) -> None:
        self._reached = image
        self._woken.set()

    async def run(self) -> None:
        """Run until cancelled.

        :raises OperatorError: the image differs from the log. This node must stop.
        """
        clock = asyncio.get_running_loop().time
        replay_at = clock() + REPLAY_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(replay_at):
                    await self._woken.wait()
            except TimeoutError:
                self._replay_wanted = True
            self._woken.clear()
            if (image := self._reached) is not None:
                self._reached = None
                await self._digest(image)
            if self._replay_wanted:
                await self.replay()
                self._replay_wanted, replay_at = False, clock() + REPLAY_SECONDS

    async def _digest(self, image: MetadataImage) -> None:
        offset = self._offset
        known, total = [self._known[0]], self._known[1]
        async for part in in_turns(digest_steps(known[0], image), DUTY):
            total += part
        self._known = (image, total % MODULUS)
        if offset == self._offset:
            self._answer = ImageDigest(image.provenance.offset + 1, total % MODULUS)
        async for _ in in_turns(release(known, image), DUTY):
            pass

    async def replay(self) -> None:
        """Compare the published image with a replay of the log; there is no result when the log is truncated meanwhile.

        :raises OperatorError: the two differ.
        """
        image, replayed = self._metadata.published, [EMPTY_IMAGE]
        if image.provenance.offset < 0:
            return
        async for step in in_turns(self._replayed(image.provenance.offset + 1), DUTY):
            if step is not None:
                replayed = [step]
        del step
        if replayed[0].provenance == image.provenance:
            difference = 0
            async for part in in_turns(digest_steps(image, *replayed), DUTY):
                difference += part
            if difference % MODULUS:
                raise wrong_image(self._node_id, image.provenance.offset + 1, str(self._storage.directory))
            log.debug("The image at offset %d is what the log says", image.provenance.offset + 1)
        async for _ in in_turns(release(replayed), DUTY):
            pass

    def _replayed(self, end: int) -> Iterator[MetadataImage | None]:
        """Replay the oldest snapshot and the log after it up to an offset, in steps. The image is of an earlier offset
        when the log was cleaned or replaced meanwhile."""
        metadata_log = self._storage.log
        start = metadata_log.start_offset()
        oldest = next((found for found in metadata_log.snapshots() if start <= found.offset <= end), None)
        image: MetadataImage | None = EMPTY_IMAGE
        if oldest is not None:
            for image in replay_snapshot(oldest.offset, oldest.epoch, self._storage.snapshot(oldest)):  # noqa: B007
                yield None
        loader, turn = ImageLoader(image or EMPTY_IMAGE), Turn()
        at = start if oldest is None else oldest.offset
        while at < end and metadata_log.start_offset() == start:
            for batch in self._storage.some_batches(at):
                at = batch.header.next_offset
                if not batch.header.is_control:
                    records = []
                    for record, size in batch.sized_records():
                        records.append(record)
                        if turn.is_over(size=size):
                            yield None
                    append_records(loader, batch.header, records)
                    while loader.apply(turn.records_left):
                        yield None
                    loader.committed(min(at, end))
                    for _ in loader.publish():
                        yield None
        yield loader.published


def wrong_image(node_id: int, offset: int, directory: str) -> OperatorError:
    """The error of a controller whose image differs from its log."""
    return OperatorError(
        f"the metadata of this controller at offset {offset} are not what a replay of its own log gives",
        where=f"controller {node_id}, {directory}",
        remedy="Keep a copy of this directory, because this is a defect of the controller or of its memory; then start "
        "the controller again, which reads its log anew. If it stops for this reason again, its newest snapshot is "
        "wrong, too: move the newest .checkpoint file out of the directory, and start the controller again",
        exit_code=ExitCode.TRY_AGAIN,
    )


class Leading(Protocol):
    """The part of the active controller that this file uses."""

    @property
    def epoch(self) -> int | None: ...


class ImageComparison:
    """Compares the digests of all controllers, on the leader.

    :param ask: asks a controller, see `GrpcRaftTransport.image_digest`; None when controllers have no gRPC.
    """

    def __init__(
        self,
        node_id: int,
        proof: ImageProof,
        leading: Leading,
        voters: Callable[[], Collection[int]],
        log_end: Callable[[], int],
        ask: Ask | None,
    ) -> None:
        self._node_id = node_id
        self._proof = proof
        self._leading = leading
        self._voters = voters
        self._log_end = log_end
        self._ask = ask
        self.listeners: list[Callable[[str], object]] = []
        """Called with a sentence when the controllers begin or cease to differ."""
        self._ahead = 0
        """How far after the end of the log the named offset is: no controller may have passed it already."""
        self._found: tuple[int, ImagesStatus] | None = None

    @property
    def status(self) -> ImagesStatus | None:
        """The last result of this leader; None on other nodes and before the first round."""
        epoch = self._leading.epoch
        return self._found[1] if self._found is not None and self._found[0] == epoch else None

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            if self._leading.epoch is not None:
                await self.compare()

    async def compare(self) -> None:
        """Ask each other controller for the digest of its image at one offset, and note which digests differ."""
        epoch, offset = self._leading.epoch, self._log_end() + self._ahead
        others = sorted(set(self._voters()) - {self._node_id})
        own, answers = await self._answers(offset, others)
        if epoch is None or self._leading.epoch != epoch or own.offset < 0:
            return
        passed = any(answer.offset > own.offset for answer in answers.values())
        self._ahead = min(2 * self._ahead + 1, AHEAD_MAX) if passed else self._ahead // 2
        at = {node_id: answer for node_id, answer in answers.items() if answer.offset == own.offset}
        different = tuple(node_id for node_id, answer in at.items() if answer.digest != own.digest)
        equal = tuple(node_id for node_id in at if node_id not in different)
        found = ImagesStatus(own.offset, wall_ms(), equal, different, tuple(sorted(set(others) - at.keys())))
        before = self.status
        if before is not None and (silent := set(before.different) & set(found.unknown)):
            # A controller that differed may have stopped for that reason: it counts as different until it gives an
            # equal digest.
            different = tuple(sorted({*different, *silent}))
            at_offset = found.offset if found.different else before.offset
            unknown = tuple(sorted(set(found.unknown) - silent))
            found = ImagesStatus(at_offset, found.time_ms, equal, different, unknown)
        self._found = (epoch, found)
        if different != (() if before is None else before.different):
            text = found.disagreement or f"the controllers agree again at offset {own.offset}"
            for listener in self.listeners:
                listener(text)
            log.log(logging.ERROR if different else logging.INFO, "%s", text)
            if different:
                await self._answers(offset, others, replay=True)

    async def _answers(
        self, offset: int, others: Sequence[int], *, replay: bool = False
    ) -> tuple[ImageDigest, Mapping[int, ImageDigest]]:
        """The digest of this node, and the digests of the controllers that give one."""
        clock = asyncio.get_running_loop().time
        until, answers = clock() + PATIENCE_SECONDS, dict.fromkeys(others, NOT_YET)
        own = self._proof.image_digest(offset, replay=replay)
        while clock() < until:
            waiting = [node_id for node_id, answer in answers.items() if answer.offset < 0]
            found = await asyncio.gather(*(self._asked(node_id, offset, replay=replay) for node_id in waiting))
            answers.update((node_id, answer) for node_id, answer in zip(waiting, found, strict=True) if answer)
            own = self._proof.image_digest(offset, replay=False)
            if own.offset >= 0 and all(answer is None or answer.offset >= 0 for answer in found):
                break
            await asyncio.sleep(ASK_SECONDS)
        return own, {node_id: answer for node_id, answer in answers.items() if answer.offset >= 0}

    async def _asked(self, node_id: int, offset: int, *, replay: bool) -> ImageDigest | None:
        """Ask one controller; None when it cannot answer, for example because it is one of Kafka's controllers."""
        if self._ask is None:
            return None
        try:
            return await self._ask(node_id, offset, replay=replay, timeout=REQUEST_SECONDS)
        except TransportError as error:
            log.debug("Controller %d does not say what its metadata come to: %s", node_id, error)
            return None
