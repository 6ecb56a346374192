"""Repeats a request after lost connections, for a bounded time.

Bulk reading and removal call it. It is only for requests that may happen twice. Any other error, and the end of the
session, ends it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kazoo.exceptions import KazooException
from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    stop_any,
    stop_when_event_set,
    wait_random_exponential,
)

from migrator.zookeeper.session import CONNECTION_ERRORS, ZooKeeperSession

T = TypeVar("T")


def retry_lost_connections(session: ZooKeeperSession, attempt: Callable[[], T], *, seconds: float, done: str) -> T:
    """Call ``attempt`` until it ends without one of `CONNECTION_ERRORS` and without kazoo's time-out. Returns its
    result.

    :param seconds: how long to try again after lost connections. The end of the session ends the attempts, too.
    :param done: the participle of the action for messages, such as "read".
    :raises ZooKeeperUnavailableError: there is no connection for that long.
    :raises OperatorError: the server refuses the request.
    """
    timeout = session.client.handler.timeout_exception
    retrying = Retrying(
        retry=retry_if_exception_type((*CONNECTION_ERRORS, timeout)),
        stop=stop_any(stop_after_delay(seconds), stop_when_event_set(session.closed)),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except (*CONNECTION_ERRORS, timeout) as error:
        how = "the session was closed" if session.closed.is_set() else f"no answer for {seconds:g} s"
        raise session.away(f"ZooKeeper could not be {done}: {how} ({type(error).__name__})") from error
    except KazooException as error:
        raise session.refusal(error, f"ZooKeeper refused to be {done}") from error
