"""The operator's service: over the Unix socket and over TCP, and what it refuses."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from migrator.errors import OperatorError
from migrator.migration.machine.states import State
from migrator.observe.status import (
    BrokerState,
    BrokerStatus,
    ClaimStatus,
    Force,
    Gate,
    Goal,
    ImagesStatus,
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
    WriteBehindStatus,
)
from migrator.observe.voters import VoterOrder
from migrator.rpc import operator_client
from migrator.rpc.identity import SOCKET, local_user
from migrator.rpc.operator_client import OperatorClient
from migrator.rpc.operator_service import OperatorService
from migrator.rpc.operator_socket import SOCKET_DIRECTORY, SOCKET_NAME, SocketDirectory
from migrator.rpc.server import GrpcServer
from migrator.rpc.stubs import operator_pb2
from tests.patience import PATIENCE_SECONDS
from tests.rpc.support.identities import VOTERS, files_of, voter
from tests.rpc.support.operator_node import HeldLock, PlayedNode, served

ONE_WAY_SECONDS = 0.1
EVENTS = tuple(JournalEvent(number, 1000 + number, "state", f"step {number}", (("from", "a"),)) for number in range(5))
GATES = (Gate("brokers", open=False, what="broker 3 is in ZooKeeper mode", remedy="Restart it"),)


def a_status(epoch: int) -> Status:
    voters = (
        VoterStatus(3000, "host", 9093, 12, zk_migration_ready=True),
        VoterStatus(3001, "::1", 9093, answers=False, silent_ms=4_000),
    )
    return Status(
        cluster_id="cluster",
        node_id=3000,
        version="0.1.0",
        time_ms=1_700_000_000_000,
        quorum=QuorumStatus(NodeRole.LEADER, 3000, epoch, 0, 12, 11, voters),
        migration=MigrationStatus("DualWrite", "dual-writing", 250, active=True),
        brokers=(
            BrokerStatus(1, BrokerState.FENCED, 5, in_zookeeper_mode=True, heartbeat_age_ms=100, silent_ms=90),
            BrokerStatus(2, BrokerState.RUNNING, 6, in_zookeeper_mode=True, silent_ms=9_500, graced=True),
        ),
        problems=(Problem("broker 1", "is fenced", "Wait", warning=True),),
        write_behind=WriteBehindStatus(4, 20, 0, 8, 9, 10),
        claim=ClaimStatus(7, 8, 9),
        metadata_version="3.9-IV0",
        recent_events=EVENTS[:1],
        formatted_version="3.8-IV0",
        is_blank=True,
        images=ImagesStatus(9, 5, (3001,), (3002,), (3003, 3004)),
    )


class Node(HeldLock):
    """A source whose status changes three times."""

    def __init__(self) -> None:
        self.paused: str | None = None
        self.forced: list[tuple[Force, str]] = []
        self.without: list[tuple[int, ...]] = []
        self.overridden: list[tuple[str, ...]] = []
        self.verdicts: list[VerdictReport] = []
        super().__init__()

    def status(self) -> Status:
        return a_status(1)

    async def updates(self) -> AsyncIterator[Status]:
        for epoch in (2, 3, 4):
            yield a_status(epoch)

    async def journal(self, after_sequence: int, *, follow: bool) -> AsyncIterator[JournalEvent]:
        for event in EVENTS:
            if event.sequence > after_sequence:
                yield event
        if follow:
            yield JournalEvent(99, 1, "new", "followed")

    async def pause(self, reason: str, by: Orderer) -> None:
        if not reason:
            raise OperatorError("a reason is needed", remedy="Give --reason")
        self.orderers.append(by)
        self.paused = reason

    async def resume(self, by: Orderer) -> None:
        if self.paused is None:
            raise OperatorError("nothing is paused")
        self.orderers.append(by)
        self.paused = None

    async def reopen(self, reason: str, by: Orderer) -> None:
        raise NotImplementedError

    async def close_way_back(self, reason: str, by: Orderer) -> None:
        raise NotImplementedError

    async def force(
        self, kind: Force, reason: str, by: Orderer, without: Sequence[int] = (), overrides: Sequence[str] = ()
    ) -> None:
        if not reason:
            raise OperatorError("the journal needs a reason", remedy="Give --reason")
        self.orderers.append(by)
        self.forced.append((kind, reason))
        self.without.append(tuple(without))
        self.overridden.append(tuple(overrides))

    async def report_verdict(self, report: VerdictReport, by: Orderer) -> VerdictAnswer:
        self.orderers.append(by)
        self.verdicts.append(report)
        return VerdictAnswer(counts=report.equal, sentence="noted")

    async def gates(self, goal: Goal) -> tuple[Gate, ...]:
        if goal is Goal.REOPEN:
            raise OperatorError("this controller does not lead the migration", remedy="Ask controller 3001")
        return GATES if goal is Goal.FINISH else ()


async def test_everything_over_the_unix_socket(tmp_path: Path) -> None:
    node = Node()
    # Longer than any socket's path may be.
    directory = tmp_path / ("metadata-" * 15)
    directory.mkdir()
    server = GrpcServer([OperatorService(node)])
    server.listen_unix(directory)
    await server.start()
    try:
        async with OperatorClient.on_socket(directory) as client:
            assert await client.status() == a_status(1)
            assert [status.quorum.leader_epoch async for status in client.watch()] == [1, 2, 3, 4]
            assert [event async for event in client.journal(2)] == list(EVENTS[3:])
            assert [event.sequence async for event in client.journal(4, follow=True)] == [99]
            assert await client.gates(Goal.FINISH) == GATES
            assert await client.gates(Goal.ROLLBACK) == ()
            with pytest.raises(OperatorError, match="this controller does not lead the migration") as refused:
                await client.gates(Goal.REOPEN)
            assert "Unexpected" not in str(refused.value), "gRPC says so of an error that nobody has caught"
            await client.pause("maintenance")
            assert node.paused == "maintenance"
            await client.resume()
            with pytest.raises(OperatorError, match="nothing is paused"):
                await client.resume()
            with pytest.raises(OperatorError, match="Give --reason"):
                await client.pause("")
            for kind in Force:
                await client.force(kind, "drill")
            await client.force(Force.FINISH, "drill", (3002, 7))
            await client.force(Force.RECLAIM, "drill", overrides=("/migration is old", "rolled back"))
            assert node.overridden.pop() == ("/migration is old", "rolled back")
            assert node.forced.pop() == (Force.RECLAIM, "drill")
            assert node.without.pop() == ()
            assert node.forced == [*((kind, "drill") for kind in Force), (Force.FINISH, "drill")]
            assert node.without == [*(() for _ in Force), (3002, 7)]
            with pytest.raises(OperatorError, match="Give --reason"):
                await client.force(Force.DELETES, "")
            report = VerdictReport("cluster", 7, 1 << 40, 6, 0x1A_0000_0001, equal=True, differences=0)
            assert await client.report_verdict(report) == VerdictAnswer(counts=True, sentence="noted")
            assert node.verdicts == [report]
            assert await client.rollout_lock() == LockAnswer("", moved=False)
            assert await client.rollout_lock(("", "mine")) == LockAnswer("mine", moved=True)
            assert await client.rollout_lock(("", "theirs")) == LockAnswer("mine", moved=False)
            assert await client.rollout_lock() == LockAnswer("mine", moved=False)
            assert set(node.orderers) == {Orderer(local_user(os.geteuid()), SOCKET)}
            assert len(node.orderers) == len(Force) + 7
    finally:
        await server.close(grace=0)
    assert not (directory / SOCKET_DIRECTORY / SOCKET_NAME).exists()


async def test_a_text_that_is_not_in_utf_8_is_named_and_not_sent(tmp_path: Path) -> None:
    """As a terminal with another encoding gives it."""
    node = Node()
    server = GrpcServer([OperatorService(node)])
    server.listen_unix(tmp_path)
    await server.start()
    text = os.fsdecode(b"ger\xe4umt")
    try:
        async with OperatorClient.on_socket(tmp_path) as client:
            for order in (
                client.pause(text),
                client.force(Force.FINISH, text, (1,)),
                client.rollout_lock(("", text)),
                client.reassign(VoterOrder.TO, text),
            ):
                with pytest.raises(OperatorError, match=r"'ger\\udce4umt': a text of this order is not in UTF-8"):
                    await order
    finally:
        await server.close(grace=0)
    assert (node.paused, node.forced, node.orderers) == (None, [], [])


async def test_something_to_force_that_this_version_does_not_know_is_refused(tmp_path: Path) -> None:
    node = Node()
    server = GrpcServer([OperatorService(node)])
    server.listen_unix(tmp_path)
    await server.start()
    try:
        async with OperatorClient.on_socket(tmp_path) as client:
            with pytest.raises(grpc.aio.AioRpcError, match="number 99"):
                await client._stub.Force(operator_pb2.ForceRequest(kind=99, reason="later version"))  # type: ignore[arg-type]
    finally:
        await server.close(grace=0)
    assert node.forced == []


async def test_nobody_else_may_open_the_socket(tmp_path: Path) -> None:
    (tmp_path / SOCKET_DIRECTORY).mkdir(mode=0o755)
    (tmp_path / SOCKET_DIRECTORY / SOCKET_NAME).touch()  # left behind by a crash
    server = GrpcServer([OperatorService(Node())])
    server.listen_unix(tmp_path)
    await server.start()
    try:
        assert stat.S_IMODE((tmp_path / SOCKET_DIRECTORY).stat().st_mode) == 0o700
        found = (tmp_path / SOCKET_DIRECTORY / SOCKET_NAME).stat().st_mode
        assert stat.S_ISSOCK(found)
        assert stat.S_IMODE(found) == 0o600
    finally:
        await server.close(grace=0)


def planted_link(directory: Path) -> None:
    """A file of an attacker who may write to the metadata directory."""
    (directory / "elsewhere").mkdir(mode=0o700)
    (directory / SOCKET_DIRECTORY).symlink_to("elsewhere")


def open_to_others(directory: Path) -> None:
    (directory / SOCKET_DIRECTORY).mkdir()
    (directory / SOCKET_DIRECTORY).chmod(0o770)


def somebody_elses(directory: Path) -> None:
    (directory / SOCKET_DIRECTORY).mkdir(mode=0o700)
    os.chown(directory / SOCKET_DIRECTORY, 12345, -1)


@pytest.mark.parametrize("prepare", [planted_link, open_to_others, somebody_elses])
async def test_a_directory_that_is_not_ours_alone_is_refused_on_both_sides(
    prepare: Callable[[Path], None], tmp_path: Path
) -> None:
    if prepare is somebody_elses and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    prepare(tmp_path)
    server = GrpcServer([OperatorService(Node())])
    with pytest.raises(OperatorError):
        server.listen_unix(tmp_path)
    with pytest.raises(OperatorError):
        OperatorClient.on_socket(tmp_path)
    await server.close(grace=0)


async def test_a_controller_that_is_not_there(tmp_path: Path, unused_tcp_port: int) -> None:
    with pytest.raises(OperatorError, match="no operator socket"):
        OperatorClient.on_socket(tmp_path)
    with pytest.raises(OperatorError, match="does not answer"):
        async with OperatorClient.at(f"127.0.0.1:{unused_tcp_port}", voter(1), frozenset(VOTERS)):
            pass


async def test_a_controller_far_away_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC gave up its attempt after 100 ms, so over a link with round trips of 40 ms no order arrived."""
    monkeypatch.setattr(operator_client, "CONNECT_SECONDS", PATIENCE_SECONDS)
    carried = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await asyncio.sleep(ONE_WAY_SECONDS)
                writer.write(data)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async with served(PlayedNode(State.DUAL_WRITING)) as address:

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            carried.append(asyncio.current_task())
            behind, before = await asyncio.open_connection(*address.split(":"))
            await asyncio.gather(carry(reader, before), carry(behind, writer))

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as link:
            far = "{}:{}".format(*link.sockets[0].getsockname())
            async with OperatorClient.at(far, files_of("operator"), frozenset(VOTERS)) as client:
                assert (await client.status(timeout=PATIENCE_SECONDS)).node_id == 1
            await asyncio.gather(*(each for each in carried if each is not None))


async def test_a_process_that_is_none_of_ours_is_said_so(tmp_path: Path) -> None:
    """Kafka's own controller after a hand-over: it holds the lock of the directory, and has no operator socket."""
    SocketDirectory(tmp_path, create=True).close()
    with pytest.raises(OperatorError, match="the controller does not answer"):
        async with OperatorClient.on_socket(tmp_path) as client:
            await client.status()
    kept = "import sys, pathlib, migrator.log.lock as lock; kept = lock.DirectoryLock(pathlib.Path(sys.argv[1]));"
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"{kept} print(flush=True); input()", tmp_path, stdin=PIPE, stdout=PIPE
    )
    try:
        assert other.stdout is not None
        assert await other.stdout.readline() == b"\n"
        with pytest.raises(OperatorError, match="a process uses this directory, but does not answer") as refused:
            async with OperatorClient.on_socket(tmp_path) as client:
                await client.status()
    finally:
        await other.communicate(b"\n")
    assert "Kafka's own controller" in refused.value.remedy


async def test_a_port_in_use_is_said_so() -> None:
    first, second = GrpcServer([]), GrpcServer([])
    port = first.listen("127.0.0.1", 0, voter(1))
    try:
        with pytest.raises(OperatorError, match="cannot listen"):
            second.listen("127.0.0.1", port, voter(1))
    finally:
        await asyncio.gather(first.close(grace=0), second.close(grace=0))
