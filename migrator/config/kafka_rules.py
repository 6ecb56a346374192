"""The contradictions in a property file that Kafka refuses on every node. Pure.

`kafkas_broker` and `kafkas_controller` ask it, for preflight, rollout and hand-over. Each problem has the key, Kafka's
reason, and a remedy. A value with a placeholder counts as valid, because it is not known here. Source:
``KafkaConfig.validateValues`` and ``CoreUtils.listenerListToEndPoints`` of Kafka 3.9.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from migrator.config.checks import Problem
from migrator.config.endpoints import LISTENER
from migrator.config.reading import is_set, number_of, text_of
from migrator.config.types import entries_of, pairs_of, parse

IDLE, DELAY = "connections.max.idle.ms", "connection.failed.authentication.delay.ms"
PER_IP, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
QUEUED, REQUEST = "queued.max.request.bytes", "socket.request.max.bytes"
RETENTION = (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000))
ROLL = (("log.roll.ms", 1), ("log.roll.hours", 3_600_000))
JITTER = (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000))
CLEANER, THREADS = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
FETCH_WAIT, LONGER = "replica.fetch.wait.max.ms", ("replica.socket.timeout.ms", "replica.lag.time.max.ms")
MIB = 1 << 20
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")
"""``Utils.validHostPattern``"""
PLACEHOLDER = "${"
"""The beginning of a placeholder. A text with one counts as valid."""


def refused_everywhere(properties: Mapping[str, str]) -> Iterator[Problem]:
    """The key, Kafka's reason to refuse the value, and the remedy."""
    for rule in _RULES:
        yield from rule(properties)


def listener_entries(properties: Mapping[str, str], key: str = "listeners") -> dict[str, tuple[str, int]] | None:
    """Name in upper case -> host and port; None when an entry cannot be parsed here."""
    found = {}
    for entry in entries_of(text_of(properties, key)):
        match = LISTENER.fullmatch(entry)
        if match is None:
            return None
        found[match[1].upper()] = match[2] or match[3], int(match[4])
    return found


def _idle(properties: Mapping[str, str]) -> Iterator[Problem]:
    idle, delay = number_of(properties, IDLE), number_of(properties, DELAY)
    if idle is not None and delay is not None and 0 <= idle <= delay:
        yield IDLE, f"{idle} is not more than {DELAY}, {delay}", f"Set more than {delay}, or remove the key"


def _connections(properties: Mapping[str, str]) -> Iterator[Problem]:
    yield from _per_ip(properties, text_of(properties, OVERRIDES))
    queued, request = number_of(properties, QUEUED), number_of(properties, REQUEST)
    if queued is not None and request is not None and 0 < queued < request:
        yield QUEUED, f"{queued} is less than {REQUEST}, {request}", f"Set at least {request}, or remove the key"


def _per_ip(properties: Mapping[str, str], text: str) -> Iterator[Problem]:
    if PLACEHOLDER in text:
        return
    try:
        overrides = pairs_of(text)
        wrong = [f"{host}:{number}" for host, number in overrides if not (_HOST.fullmatch(host) and _is_int(number))]
    except ValueError as error:
        yield OVERRIDES, str(error), "Write host:number, separated by commas"
        return
    if wrong:
        yield OVERRIDES, f"{wrong[0]} is not host:number for Kafka", "Write it so, an IPv6 address without brackets"
    if number_of(properties, PER_IP) == 0 and not overrides:
        yield PER_IP, f"it is 0, and nobody is in {OVERRIDES}", f"Remove the key, or set {OVERRIDES}"


def _is_int(text: str) -> bool:
    with suppress(ValueError):
        return parse("int", text) is not None
    return False


def _log(properties: Mapping[str, str]) -> Iterator[Problem]:
    for units, lowest, endless in ((ROLL, 1, False), (JITTER, 0, False), (RETENTION, 1, True)):
        key, unit = next((each for each in units if is_set(properties, each[0])), units[-1])
        told = number_of(properties, key)
        if told is not None and told * unit < lowest and not (endless and told < 0):
            yield key, f"{told} is less than {lowest}", "Set more, or remove the key"
    size, threads = number_of(properties, CLEANER), number_of(properties, THREADS)
    if size is not None and threads and size // threads <= MIB:
        what = f"{size} for {threads} threads is not more than {MIB} for each"
        yield CLEANER, what, "Set more, or remove the key"
    for key in LONGER:
        wait, longer = number_of(properties, FETCH_WAIT), number_of(properties, key)
        if wait is not None and longer is not None and wait > longer:
            yield FETCH_WAIT, f"{wait} is more than {key}, {longer}", f"Set at most {longer}, or remove the key"


def _ports(properties: Mapping[str, str]) -> Iterator[Problem]:
    """Two listeners share a port only if one has an IPv4 address, and the other an IPv6 address."""
    hosts: dict[int, list[str]] = defaultdict(list)
    for host, port in (listener_entries(properties) or {}).values():
        hosts[port].append(host)
    for port, found in hosts.items():
        if port and len(found) > 1 and sorted(map(_version, found)) != [4, 6]:
            yield "listeners", f"{len(found)} listeners have port {port}", "Give each its own port"


def _version(host: str) -> int:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


_RULES: tuple[Callable[[Mapping[str, str]], Iterator[Problem]], ...] = (_idle, _connections, _log, _ports)
