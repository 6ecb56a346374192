"""A light broker as a process of its own, from Kafka's property file, as a service manager starts real ones.

python -m tests.kit.light_broker server.properties
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from secrets import randbits

from migrator.config.keys import FLAG
from migrator.config.properties import parse_properties, read_decoded
from migrator.config.types import split_list
from migrator.drill.light.broker import LightBroker, LightBrokerMode, LightBrokerOptions
from migrator.errors import OperatorError
from migrator.log.meta_properties import read_meta_properties

SESSION_TIMEOUT_MS = 18_000
"""Kafka's default."""


def mode_of(file: Mapping[str, str]) -> LightBrokerMode:
    """How a broker with this file runs."""
    if file.get("process.roles"):
        return LightBrokerMode.KRAFT
    return LightBrokerMode.MIGRATING if file.get(FLAG) == "true" else LightBrokerMode.ZOOKEEPER


def options_of(path: Path) -> tuple[LightBrokerOptions, int]:
    """Of a broker with one listener, PLAINTEXT, whose ``log.dirs`` says of which cluster it is; and its port.

    :raises OperatorError: something is missing.
    """
    file = parse_properties(read_decoded(path))
    try:
        broker_id, directory = int(file.get("broker.id") or file["node.id"]), Path(file["log.dirs"])
        port = int(file["listeners"].rpartition(":")[2])
        named = split_list(file.get("controller.quorum.voters", ""))
        voters = [each.partition("@")[2].rpartition(":") for each in named]
        controllers = [(host, int(at)) for host, _, at in voters if host]
        session_ms = int(file.get("zookeeper.session.timeout.ms", SESSION_TIMEOUT_MS))
    except (KeyError, ValueError) as error:
        raise OperatorError(f"a light broker cannot run with it: {error}", where=str(path)) from error
    identity = read_meta_properties(directory)
    if identity is None:
        raise OperatorError("there is no meta.properties", where=str(directory))
    options = LightBrokerOptions(
        broker_id,
        identity.cluster_id,
        file.get("zookeeper.connect", ""),
        controllers,
        session_seconds=session_ms / 1000,
        rack=file.get("broker.rack", ""),
        file=file,
        life=randbits(32),
    )
    return options, port


async def run(path: Path, events: Path | None) -> list[str]:
    """Run the broker until SIGTERM or SIGINT, then leave in good order.

    :param events: where it notes, a line of JSON each, when it begins to serve, and when it is told to end; by the
        clock that all processes of a machine share, and that never jumps.
    :returns: what it saw that no broker may see.
    """
    options, port = options_of(path)
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)

    def note(*, serves: bool) -> None:
        if events is not None:
            turn = {"at_ns": time.monotonic_ns(), "broker_id": options.broker_id, "serves": serves}
            with events.open("a", encoding="utf-8") as file:
                file.write(json.dumps(turn) + "\n")

    broker = LightBroker(options)
    broker.port = port
    mode = mode_of(options.file or {})
    await broker.start(mode)
    serves = asyncio.create_task(broker.running.wait()) if mode is LightBrokerMode.KRAFT else None
    ends = asyncio.create_task(told_to_stop.wait())
    if serves is not None:
        await asyncio.wait((serves, ends), return_when=asyncio.FIRST_COMPLETED)
        serves.cancel()
    note(serves=True)
    await ends
    note(serves=False)
    await broker.stop()
    return broker.violations


def main() -> None:
    """``PATH [EVENTS]``; prints what the broker saw that no broker may see."""
    path, *events = map(Path, sys.argv[1:])
    for line in asyncio.run(run(path, events[0] if events else None)):
        sys.stdout.write(f"violation: {line}\n")


if __name__ == "__main__":
    main()
