"""Errors of the drill's administrator about brokers that do not answer."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.drill.kafka import clients
from tests.interop.support.cluster import Admin


def answered(text: str) -> Future[str]:
    future: Future[str] = Future()
    future.set_result(text)
    return future


def test_a_request_without_an_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "ANSWER_SECONDS", 0.01)
    silent: Future[str] = Future()
    with pytest.raises(TimeoutError, match=r"no answer from the brokers .* about orders$"):
        Admin.wait({"payments": answered("created"), "orders": silent})


def test_answers_come_by_what_they_are_about() -> None:
    assert Admin.wait({"payments": answered("created")}) == {"payments": "created"}


def test_what_is_answered_is_raised() -> None:
    refused: Future[str] = Future()
    refused.set_exception(ValueError("it exists"))
    with pytest.raises(ValueError, match="it exists"):
        Admin.wait({"payments": refused})


def test_an_administrator_begins_when_every_broker_knows_every_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that does not know of the brokers yet refuses to make topics, although others know of all."""
    asked: list[str] = []

    class Client:
        def __init__(self, configuration: dict[str, Any]) -> None:
            self._server = configuration["bootstrap.servers"]

        def list_topics(self, timeout: float) -> SimpleNamespace:
            assert timeout > 0
            asked.append(self._server)
            late = self._server == "late:9" and asked.count("late:9") < 3
            return SimpleNamespace(brokers=[] if late else [1, 2], controller_id=1)

    monkeypatch.setattr(clients, "AdminClient", Client)
    Admin("soon:9,late:9", 2)
    assert asked.count("late:9") == 3


def test_a_partition_that_broker_0_leads_is_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    leaders = [0]

    class Client:
        def __init__(self, _configuration: dict[str, Any]) -> None:
            pass

        def list_topics(self, timeout: float) -> SimpleNamespace:
            assert timeout > 0
            parts = {at: SimpleNamespace(leader=each, isrs=[0], replicas=[0]) for at, each in enumerate(leaders)}
            return SimpleNamespace(brokers=[0], controller_id=0, topics={"orders": SimpleNamespace(partitions=parts)})

    monkeypatch.setattr(clients, "AdminClient", Client)
    admin = Admin("only:9", 1)
    assert admin.in_sync()
    leaders.append(-1)
    assert not admin.in_sync()
