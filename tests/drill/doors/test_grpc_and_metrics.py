"""The drill's report about gRPC and metrics: empty when all are refused, and a sentence for each intruder."""

from __future__ import annotations

import asyncio
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from migrator.drill.cluster import CLUSTER_ID, ControllerProcess
from migrator.drill.doors import grpc_and_metrics
from migrator.drill.doors.grpc_and_metrics import LISTENER, METRICS, try_grpc, try_metrics
from migrator.drill.doors.intruder import Attempts, shut_to_all
from migrator.drill.security.protection import INTRUDER, METRICS_READER, Secured
from migrator.migration.machine.states import State
from migrator.observe import metrics_endpoint
from migrator.observe.metrics_access import AccessFiles
from migrator.observe.metrics_endpoint import MetricsEndpoint
from migrator.raft.messages import RaftRequest, RaftResponse
from migrator.rpc.identity import DOORS, CallerRole, Identities
from migrator.rpc.operator_service import OperatorService, VotersService
from migrator.rpc.quorum_service import QuorumService
from migrator.rpc.server import GrpcServer
from migrator.rpc.tls import TlsFiles
from tests.rpc.support.operator_node import PlayedNode
from tests.rpc.support.transports import VOTED, View
from tests.rpc.support.voters import VotersOfTest

NODE = 3001
VOTER = {f"User:CN=controller-{NODE}": NODE}
BY_STRANGERS = 4


async def tried(directory: Path, identities: Identities, closes: pytest.MonkeyPatch | None = None) -> Attempts:
    """The doors of one controller that knows these. ``closes``: it ends after the first call."""
    secured = Secured(directory / "security")

    async def answer(_: RaftRequest) -> RaftResponse:
        return VOTED

    quorum = QuorumService(CLUSTER_ID, answer, View())
    operator = OperatorService(PlayedNode(State.DUAL_WRITING))
    server = GrpcServer([quorum, operator, VotersService(VotersOfTest())], identities)
    files = TlsFiles(*secured.authority.files(directory / "grpc", f"controller-{NODE}"))
    port = server.listen("127.0.0.1", 0, files)
    await server.start()
    if closes is not None:
        call = grpc_and_metrics._call

        async def call_and_close(*arguments: Any) -> Any:
            try:
                return await call(*arguments)
            finally:
                await server.close(grace=0)

        closes.setattr(grpc_and_metrics, "_call", call_and_close)
    try:
        return await try_grpc([ControllerProcess(NODE, directory, {LISTENER: f"127.0.0.1:{port}"})], secured)
    finally:
        await server.close(grace=0)


async def test_whoever_is_not_named_is_refused_over_grpc(tmp_path: Path) -> None:
    assert await tried(tmp_path, Identities(VOTER)) == Attempts(BY_STRANGERS + len(DOORS), ())


async def test_an_intruder_who_is_let_in_is_named_with_each_call(tmp_path: Path) -> None:
    found = await tried(tmp_path, Identities(VOTER, frozenset({f"User:CN={INTRUDER}"})))
    open_to_him = [method for method, door in DOORS.items() if CallerRole.OPERATOR in door.roles]
    assert len(found.let_in) == len(open_to_him)
    for method, said in zip(open_to_him, found.let_in, strict=True):
        assert f"gRPC of controller {NODE}, intruder: {method} was answered" in said


async def test_a_grpc_door_that_is_shut_for_everybody_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_and_metrics, "PATIENCE_SECONDS", 0.0)
    found = await tried(tmp_path, Identities())
    assert found == shut_to_all(f"gRPC of controller {NODE}", "PERMISSION_DENIED")


async def test_a_grpc_door_that_closes_meanwhile_refuses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed TLS handshake and no answer have one code."""
    monkeypatch.setattr(grpc_and_metrics, "PATIENCE_SECONDS", 0.0)
    found = await tried(tmp_path, Identities(VOTER), closes=monkeypatch)
    assert (found.count, found.let_in) == (BY_STRANGERS + len(DOORS), ())
    assert len(found.unproved) == BY_STRANGERS + len(DOORS)


async def scraped(directory: Path, *, password: bool = True, certificates: bool = True) -> Attempts:
    secured = Secured(directory / "security")
    keys = secured.of_controller(NODE)
    access = AccessFiles(
        keys["migrator.metrics.tls.certificate.file"],
        keys["migrator.metrics.tls.key.file"],
        keys["migrator.metrics.tls.ca.file"] if certificates else "",
        keys["migrator.metrics.basic.auth.file"] if password else "",
    )
    endpoint = await asyncio.to_thread(MetricsEndpoint, "127.0.0.1", 0, [], access=access)
    with closing(endpoint):
        controller = ControllerProcess(NODE, directory, {METRICS: f"127.0.0.1:{endpoint.port}"})
        return await try_metrics([controller], secured)


async def test_metrics_are_for_those_with_certificate_and_password(tmp_path: Path) -> None:
    assert await scraped(tmp_path) == Attempts(4, ())


async def test_without_passwords_somebody_reads_them(tmp_path: Path) -> None:
    found = await scraped(tmp_path, password=False, certificates=True)
    assert [text.partition(": ")[2] for text in found.let_in] == [
        "a stranger with no password gets 200",
        "a stranger with a guess gets 200",
    ]


async def test_without_certificates_so_does_somebody_with_the_password(tmp_path: Path) -> None:
    found = await scraped(tmp_path, password=True, certificates=False)
    assert [text.partition(": ")[2] for text in found.let_in] == [
        "a stranger without a certificate gets 200",
        "a stranger with a certificate of another authority gets 200",
    ]
    assert METRICS_READER not in str(found)


async def test_an_answer_that_a_busy_endpoint_cuts_off_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once counted as an intrusion, although nobody had got in."""
    cut = iter(range(3))

    def sometimes(self: Any) -> None:
        if next(cut, None) is None:
            handle(self)

    handle = metrics_endpoint._Handler.handle
    monkeypatch.setattr(metrics_endpoint._Handler, "handle", sometimes)
    assert await scraped(tmp_path) == Attempts(4, ())
    assert next(cut, None) is None


async def test_nor_does_it_refuse_a_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger whose connection was accepted, and then cut off, once counted as denied."""
    requests = count()

    def not_second(self: Any) -> None:
        if next(requests) != 1:
            handle(self)

    handle = metrics_endpoint._Handler.handle
    monkeypatch.setattr(metrics_endpoint._Handler, "handle", not_second)
    assert len((await scraped(tmp_path, certificates=False)).let_in) == 2


async def test_metrics_that_never_answer_are_no_intrusion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_and_metrics, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(metrics_endpoint._Handler, "handle", lambda _: None)
    assert await scraped(tmp_path) == shut_to_all(f"metrics of controller {NODE}", "a closed connection")
