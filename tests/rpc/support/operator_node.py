"""A model of a controller for its operators: its states come from a list, and it notes the orders.

Tests of commands use it in place of a controller, over a real gRPC server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState, State
from migrator.observe.status import (
    Force,
    Gate,
    Goal,
    JournalEvent,
    LockAnswer,
    MigrationStatus,
    NodeRole,
    Orderer,
    Problem,
    QuorumStatus,
    Status,
    VerdictAnswer,
    VerdictReport,
    VoterStatus,
)
from migrator.rpc.operator_service import OperatorService
from migrator.rpc.server import GrpcServer
from tests.rpc.support.identities import IDENTITIES, properties_of, voter

WRITTEN = "ZooKeeper equals the log, 3 entities had to be written"


class HeldLock:
    """The rollout's lock of a node that is played, and who has given it orders."""

    def __init__(self) -> None:
        self.lock = ""
        self.orderers: list[Orderer] = []

    async def read_lock(self) -> LockAnswer:
        return LockAnswer(self.lock, moved=False)

    async def move_lock(self, before: str, after: str, by: Orderer) -> LockAnswer:
        self.orderers.append(by)
        moved = before == self.lock
        self.lock = after if moved else self.lock
        return LockAnswer(self.lock, moved=moved)


class PlayedNode(HeldLock):
    """Shows one state of ``states`` each time that it is asked, the last one for ever.

    :param after_force: the states that follow an order.
    """

    def __init__(
        self,
        *states: State,
        node_id: int = 1,
        leader_id: int = 1,
        public: PublicState = PublicState.DUAL_WRITE,
        after_force: tuple[State, ...] = (State.RECONCILING, State.INFORMING_BROKERS, State.DUAL_WRITING),
    ) -> None:
        self.states = list(states)
        self.node_id = node_id
        self.leader_id = leader_id
        self.public = public
        self.after_force = after_force
        self.voters: tuple[VoterStatus, ...] = ()
        self.orders: list[tuple[str, str]] = []
        self.overridable: tuple[str, ...] = ()
        self.goals_open = {Goal.ROLLBACK}
        self.overridden: list[tuple[str, ...]] = []
        self.without: list[tuple[int, ...]] = []
        """The nodes of each order to force."""
        self.verdicts: list[VerdictReport] = []
        super().__init__()
        self.events: list[JournalEvent] = []

    def status(self) -> Status:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return Status(
            cluster_id="cluster",
            node_id=self.node_id,
            version="0.1.0",
            time_ms=1,
            quorum=QuorumStatus(NodeRole.LEADER, self.leader_id, 1, 0, 1, 1, self.voters),
            migration=MigrationStatus(
                self.public.label,
                state.value,
                5,
                active=state is not State.INACTIVE,
                overridable=self.overridable,
            ),
            problems=(Problem("migration", f"it is {state.value}", "Do something"),),
            recent_events=tuple(self.events),
        )

    async def updates(self) -> AsyncIterator[Status]:
        changes: tuple[Status, ...] = ()
        for status in changes:
            yield status

    async def journal(self, after_sequence: int, *, follow: bool) -> AsyncIterator[JournalEvent]:
        for event in self.events:
            yield event

    async def pause(self, reason: str, by: Orderer) -> None:
        self.orderers.append(by)
        self.orders.append(("pause", reason))

    async def resume(self, by: Orderer) -> None:
        self.orderers.append(by)
        self.orders.append(("resume", ""))

    async def force(
        self, kind: Force, reason: str, by: Orderer, without: Sequence[int] = (), overrides: Sequence[str] = ()
    ) -> None:
        self.orderers.append(by)
        if kind is Force.DELETES:
            raise OperatorError("nothing was forced")
        self.without.append(tuple(without))
        self.overridden.append(tuple(overrides))
        self.orders.append((kind, reason))
        self.states = list(self.after_force)
        details = (("after", State.INFORMING_BROKERS.value), ("before", State.RECONCILING.value))
        self.events = [JournalEvent(1, 1, "transition", WRITTEN, details), JournalEvent(2, 2, "transition", "next")]

    async def reopen(self, reason: str, by: Orderer) -> None:
        self.orderers.append(by)
        self.orders.append(("reopen", reason))

    async def close_way_back(self, reason: str, by: Orderer) -> None:
        self.orderers.append(by)
        self.orders.append(("close-way-back", reason))

    async def report_verdict(self, report: VerdictReport, by: Orderer) -> VerdictAnswer:
        self.orderers.append(by)
        self.verdicts.append(report)
        return VerdictAnswer(counts=report.equal, sentence="noted")

    async def gates(self, goal: Goal) -> tuple[Gate, ...]:
        brokers = Gate(
            "brokers", open=goal in self.goals_open, what="brokers in ZooKeeper mode: 7", remedy="Restart them"
        )
        return (Gate("state", open=True, what="the migration is in DualWrite"), brokers)


@asynccontextmanager
async def served(node: PlayedNode, directory: Path | None = None) -> AsyncIterator[str]:
    """The node's service; gives its ``host:port``. With a directory also on the socket there."""
    server = GrpcServer([OperatorService(node)], IDENTITIES)
    if directory is not None:
        server.listen_unix(directory)
    port = server.listen("127.0.0.1", 0, voter(node.node_id))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.close(grace=0)


def property_file(directory: Path, *peers: str) -> Path:
    """Of controller 1, whose metadata directory is ``directory``; ``peers`` are gRPC addresses of controllers 2..."""
    voters = {1: "127.0.0.1:1", **dict(enumerate(peers, start=2))}
    keys = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{9000 + voter}" for voter in voters),
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:9001",
        "log.dirs": str(directory),
    }
    if peers:
        keys |= properties_of(voter(1))
        keys["migrator.grpc.voter.principals"] = ";".join(f"{number}@User:CN=voter-{number}" for number in voters)
        keys["migrator.grpc.listener"] = voters[1]
        keys["migrator.grpc.voters"] = ",".join(f"{voter}@{address}" for voter, address in voters.items())
    file = directory / "controller.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    return file
