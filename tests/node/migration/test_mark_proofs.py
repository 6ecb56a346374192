"""The proof of /migration by a log on disk. It never takes another quorum's mark for ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.errors import OperatorError
from migrator.log.metadata_log import MetadataLog
from migrator.log.quorum_state import QuorumStateFile
from migrator.migration.machine.guards import MarkEvidence, Ownership, Standing, ownership
from migrator.node.migration.mark_proofs import MarkProofs
from migrator.node.quorum.storage import NodeStorage
from migrator.raft.effects import AppendLeaderChange
from migrator.raft.messages import EpochOffset
from migrator.records.batch import build_batch
from migrator.records.codec import encode
from migrator.records.control import LeaderChange, Voter, build_control_batch
from migrator.records.metadata import NoOpRecord
from migrator.wire.voters import VoterAnswer
from migrator.zookeeper.leadership import ClaimView
from migrator.zookeeper.znodes.migration import MigrationState
from tests.lanes import examples

US, STOCK, NOBODY = 3001, 3003, 3009
NO_OP = encode(NoOpRecord(), 0)


class YoungQuorum:
    """The log of one voter. ``began_ms``: when its first leader was elected."""

    def __init__(self, directory: Path, began_ms: int) -> None:
        self.storage = NodeStorage(MetadataLog.open(directory), QuorumStateFile(directory, (US, STOCK)))
        self.now_ms = began_ms
        self.answers: dict[int, VoterAnswer] = {}
        self.proofs = MarkProofs(self.storage, US, self._ask)

    async def _ask(self, voter: int) -> VoterAnswer | None:
        return self.answers.get(voter)

    @property
    def log(self) -> MetadataLog:
        return self.storage.log

    def lead(self, leader: int, epoch: int, batches: int, records: int = 1) -> YoungQuorum:
        """A leader writes its LeaderChange and NoOps, each half a second after the other."""
        if leader == STOCK:
            change = LeaderChange(leader, (Voter(leader),), (Voter(leader),))
            opened = build_control_batch(
                [change], timestamp_ms=self.now_ms, base_offset=self.log.end_offset(), leader_epoch=epoch
            )
        else:
            opened = self.storage.leader_change(AppendLeaderChange(epoch, leader, (leader,), (leader,)), self.now_ms)
        self.log.append(opened)
        for _ in range(batches):
            self.now_ms += 500
            end = self.log.end_offset()
            self.log.append(
                build_batch([NO_OP] * records, timestamp_ms=self.now_ms, base_offset=end, leader_epoch=epoch)
            )
        return self

    def mark(self, offset: int, *, leader: int = US, crc: bool = True) -> MigrationState:
        """The content of /migration as a leader of this quorum writes it in the epoch of that offset."""
        epoch = self.log.epoch_at(offset)
        assert epoch is not None
        return MigrationState(leader, epoch, offset, epoch, self.proofs.crc_at(offset) if crc else None)

    def ownership(self, mark: MigrationState) -> Ownership:
        view = ClaimView(1, 1, None, -1, mark, 1)
        return ownership(Standing("cluster", view, asyncio.run(self.proofs.evidence(mark))))

    def start_at(self, offset: int) -> None:
        """As if a snapshot had taken the place of what is before."""
        epoch = self.log.epoch_at(offset - 1)
        assert epoch is not None
        self.log._forget_before(EpochOffset(epoch, offset), 0)


@contextmanager
def young_quorums(count: int) -> Iterator[list[YoungQuorum]]:
    with TemporaryDirectory() as folder:
        quorums = [YoungQuorum(Path(folder, str(number)), 1_000_000 * (number + 1)) for number in range(count)]
        try:
            yield quorums
        finally:
            for quorum in quorums:
                quorum.storage.close()


@pytest.fixture
def quorum() -> Iterator[YoungQuorum]:
    with young_quorums(1) as (found,):
        yield found


@settings(deadline=None, max_examples=examples(12))
@given(
    leaders=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=3),
    apart_ms=st.integers(1, 5),
    compacted=st.floats(0, 1),
)
def test_two_young_quorums_never_take_each_others_mark_for_their_own(
    leaders: list[tuple[int, int]], apart_ms: int, compacted: float
) -> None:
    """Their epochs, offsets, records and leaders are equal; their times differ by milliseconds."""
    with young_quorums(2) as (ours, theirs):
        theirs.now_ms = ours.now_ms + apart_ms
        for epoch, (batches, records) in enumerate(leaders, start=1):
            ours.lead(US, epoch, batches, records)
            theirs.lead(US, epoch, batches, records)
        end = ours.log.end_offset()
        ours.start_at(max(1, int(compacted * (end - 1))))
        for offset in range(1, end):
            mark = theirs.mark(offset)
            assert theirs.ownership(mark) is Ownership.OURS
            assert ours.ownership(mark) in {Ownership.FOREIGN, Ownership.UNPROVED}
            assert ours.ownership(replace(mark, batch_crc=None)) in {Ownership.FOREIGN, Ownership.UNPROVED}


def test_the_mark_of_a_stock_leader_is_ours_when_the_log_shows_it(quorum: YoungQuorum) -> None:
    quorum.lead(US, 1, 5).lead(STOCK, 2, 5)
    assert quorum.ownership(quorum.mark(9, leader=STOCK, crc=False)) is Ownership.OURS
    # It has just claimed: its own id and epoch, beside the offset and the epoch that ours had reached.
    claimed = MigrationState(STOCK, 2, 4, 1)
    assert quorum.ownership(claimed) is Ownership.OURS
    for doubtful in (
        replace(claimed, kraft_controller_epoch=1),  # ours led then
        replace(claimed, kraft_controller_id=NOBODY),  # another led then
        replace(claimed, kraft_controller_epoch=3),  # nobody has led yet
    ):
        assert quorum.ownership(doubtful) is Ownership.UNPROVED
    quorum.answers[STOCK] = VoterAnswer(migrating=True, is_ours=False)
    assert quorum.ownership(claimed) is Ownership.OURS
    quorum.answers[STOCK] = VoterAnswer(migrating=True, is_ours=True)
    assert quorum.ownership(claimed) is Ownership.UNPROVED, "this program with an old log, perhaps"


def test_an_old_version_of_ours_left_no_proof(quorum: YoungQuorum) -> None:
    """Its log names no program, and its mark has no checksum: an operator has to force it once."""
    change = LeaderChange(US, (Voter(US),), (Voter(US),))
    quorum.log.append(build_control_batch([change], timestamp_ms=1, leader_epoch=1))
    quorum.lead(US, 2, 3)
    assert quorum.ownership(MigrationState(US, 1, 0, 1)) is Ownership.NOT_COPIED
    assert quorum.ownership(MigrationState(US, 1, 2, 2)) is Ownership.UNPROVED


def test_what_the_log_lets_go_cannot_be_proved(quorum: YoungQuorum) -> None:
    quorum.lead(US, 1, 9).lead(STOCK, 2, 9)
    ours, stocks = quorum.mark(5), quorum.mark(15, leader=STOCK, crc=False)
    assert (quorum.proofs.needed_from(ours), quorum.proofs.needed_from(stocks)) == (5, 10)
    quorum.start_at(10)
    assert quorum.ownership(ours) is Ownership.UNPROVED
    assert quorum.proofs.crc_at(5) is None
    assert quorum.ownership(stocks) is Ownership.OURS
    quorum.start_at(12)
    assert quorum.ownership(stocks) is Ownership.UNPROVED, "who was elected is not in the log any more"
    assert quorum.ownership(replace(ours, kraft_metadata_epoch=3)) is Ownership.FOREIGN
    assert asyncio.run(quorum.proofs.evidence(quorum.mark(18))) == MarkEvidence(2, quorum.proofs.crc_at(18))


async def test_what_is_kept_follows_the_mark_also_while_zookeeper_is_away(quorum: YoungQuorum) -> None:
    quorum.lead(US, 1, 9)
    shown: list[MigrationState | None] = []

    def view() -> ClaimView:
        if not shown:
            raise OperatorError("ZooKeeper is away")
        return ClaimView(1, 1, None, -1, shown.pop(), 1)

    async def kept_from() -> int:
        return await quorum.proofs.kept_from(view, EpochOffset(1, 3))

    assert await kept_from() == 3, "the end of the copy"
    shown.append(None)
    assert await kept_from() == 3
    shown.append(quorum.mark(7))
    assert await kept_from() == 7
    assert await kept_from() == 7
