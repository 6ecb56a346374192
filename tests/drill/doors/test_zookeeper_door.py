"""The drill's report about ZooKeeper: only a refusal counts as one, and each request that was carried out is named."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError, NodeExistsError, NoNodeError

from migrator.drill.doors import every_door, intruder
from migrator.drill.doors.intruder import DENIED, Attempts
from migrator.parts import zookeeper

SILENT, ENDS, ANSWERS = "is silent", "ends the connection", "answers"
LET_IN = Attempts(1, ("ZooKeeper answers a stranger strange",))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(intruder, "RETRY_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("server_does", "found"),
    [
        ([ENDS], DENIED),
        ([ANSWERS], LET_IN),
        ([SILENT, ANSWERS], LET_IN),
        ([SILENT, ENDS], DENIED),
    ],
)
def test_silence_refuses_nobody_and_is_asked_again(server_does: list[str], found: Attempts) -> None:
    """A second of silence of a busy server once counted as a refusal."""
    with ExitStack() as open_, ThreadPoolExecutor(1) as serving:
        server = open_.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            for deed in server_does:
                connection = open_.enter_context(server.accept()[0])
                if deed != SILENT:
                    connection.recv(4)
                    connection.sendall(b"Mode: standalone" if deed == ANSWERS else b"")
                    connection.close()

        served = serving.submit(serve)
        assert every_door._unauthenticated(server.getsockname()[1], "strange", None) == found
        served.result()


def test_silence_for_long_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intruder, "PATIENCE_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = every_door._unauthenticated(server.getsockname()[1], "strange", None)
    assert (found.count, found.let_in, len(found.unproved)) == (1, (), 1)


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ([NoAuthError()], True),
        ([ConnectionLoss(), NoNodeError(), NoAuthError()], True),
        ([None], False),
        ([ConnectionLoss(), NodeExistsError()], False),  # the first one was carried out
    ],
)
def test_a_deed_whose_answer_was_lost_is_an_intrusion_if_it_was_done(
    answers: list[Exception | None], *, refused: bool
) -> None:
    coming = iter(answers)

    def deed(_: object) -> None:
        if (answer := next(coming)) is not None:
            raise answer

    assert every_door._forbidden(None, "register a broker", deed) == (
        DENIED if refused else Attempts(1, ("ZooKeeper lets an intruder register a broker",))
    )
